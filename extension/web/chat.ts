/** The mount of the chat page: gets in with a token, then shows the page or says what keeps it out. */

import { AccessError, forgetToken, obtainToken, readServer, tokenAccepted } from "./access.js";
import { Page, show } from "./page.js";
import { applyTheme } from "./theme.js";
import { obstacle } from "./views/welcome.js";

const FRESH_LINK = "Run “etude serve” in a terminal and open the link that it prints.";

function readAddress(): string | null {
  return new URLSearchParams(location.hash.slice(1)).get("s");
}

function writeAddress(sessionId: string | null): void {
  const hash = sessionId === null ? location.pathname : `#${new URLSearchParams({ s: sessionId }).toString()}`;
  if (readAddress() !== sessionId) history.pushState(null, "", hash);
}

function refuse(root: Element, sentence: string): void {
  show(root, obstacle("This page is locked", [sentence, FRESH_LINK]));
}

async function enter(root: Element): Promise<void> {
  const token = await obtainToken();
  const server = await readServer(token);
  const locked = (): void => {
    forgetToken();
    refuse(root, "The server does not accept this browser's key any more.");
  };
  if (server === null) {
    locked();
    return;
  }
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const page = new Page({
    endpoint: { url: `${scheme}//${location.host}/acp`, token, accepted: () => tokenAccepted(token) },
    server,
    keep: sessionStorage,
    address: { read: readAddress, write: writeAddress },
    refused: locked,
  });
  show(root, page.element);
  page.start();
}

async function mount(): Promise<void> {
  const root = document.getElementById("etude");
  if (root === null) return;
  try {
    await enter(root);
  } catch (error) {
    if (error instanceof AccessError) refuse(root, error.message);
    else {
      const again = { label: "Try again", run: () => { location.reload(); } };
      show(root, obstacle("The server cannot be reached", ["It may be starting, or it has stopped."], again));
    }
  }
}

applyTheme();
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => void mount());
else void mount();
