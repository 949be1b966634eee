/** The bearer token: traded once for the code in the link, kept in this browser, forgotten when refused. */

import { isDict, list, text, type ServerInfo } from "./wire.js";

const KEY = "etude.token";

export class AccessError extends Error {}

/** The token for this server. A code in the address is traded for it and removed from the address. */
export async function obtainToken(): Promise<string> {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const code = fragment.get("code");
  if (code !== null) {
    fragment.delete("code");
    const rest = fragment.toString();
    history.replaceState(null, "", location.pathname + location.search + (rest === "" ? "" : `#${rest}`));
    const token = await trade(code);
    if (token !== null) {
      localStorage.setItem(KEY, token);
      return token;
    }
  }
  const kept = localStorage.getItem(KEY);
  if (kept !== null) return kept;
  throw new AccessError(
    code === null
      ? "This page needs the link that the server prints when it starts."
      : "This link was used before or has expired.",
  );
}

export function forgetToken(): void {
  localStorage.removeItem(KEY);
}

async function trade(code: string): Promise<string | null> {
  const response = await fetch("/api/token", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ code }),
  });
  if (!response.ok) return null;
  const answer: unknown = await response.json();
  return isDict(answer) && typeof answer["token"] === "string" ? answer["token"] : null;
}

/** Read one REST resource. Null when the token is not accepted. */
export async function readApi(path: string, token: string): Promise<unknown> {
  const response = await fetch(path, { headers: { authorization: `Bearer ${token}` } });
  if (response.status === 401) return null;
  if (!response.ok) throw new AccessError(`The server answered ${String(response.status)} for ${path}.`);
  return response.json();
}

/** False only when the server itself refuses the token. */
export async function tokenAccepted(token: string): Promise<boolean> {
  try {
    return (await readApi("/api/server", token)) !== null;
  } catch {
    return true;
  }
}

export async function readServer(token: string): Promise<ServerInfo | null> {
  const answer = await readApi("/api/server", token);
  if (!isDict(answer)) return null;
  return {
    version: text(answer["version"]),
    workspaces: list(answer["workspaces"]).map(text).filter(Boolean),
    models: list(answer["models"]).map(text).filter(Boolean),
    mode: text(answer["mode"]) || "ask",
    model: text(answer["model"]),
    user: text(answer["user"]),
  };
}
