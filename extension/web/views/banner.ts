/** The state of the connection, in words, while it is not well. */

import type { Status } from "../connection.js";
import { h, setHidden, setText } from "../dom.js";

/** A break this short is not worth a word. */
const PATIENCE_MS = 600;

export class Banner {
  readonly element = h("div", { class: "banner", role: "status", hidden: true });
  private readonly words = h("span");
  private readonly retry = h("button", { type: "button", text: "Try now" });
  private timer: ReturnType<typeof setInterval> | undefined;
  private status: Status = { kind: "connecting" };
  private since = Date.now();

  constructor(retry: () => void) {
    this.retry.addEventListener("click", retry);
    this.element.append(this.words, this.retry);
  }

  update(status: Status): void {
    const well = status.kind === "online" || status.kind === "refused";
    if (well) this.since = NaN;
    else if (Number.isNaN(this.since)) this.since = Date.now();
    this.status = status;
    clearInterval(this.timer);
    if (!well) {
      this.timer = setInterval(() => {
        this.draw();
      }, 250);
    }
    this.draw();
  }

  private draw(): void {
    const { status } = this;
    const waiting = status.kind === "offline" || status.kind === "connecting";
    setHidden(this.element, !waiting || Date.now() - this.since < PATIENCE_MS);
    setHidden(this.retry, status.kind !== "offline");
    if (status.kind === "connecting") setText(this.words, "Connecting to the server…");
    if (status.kind !== "offline") return;
    const seconds = Math.ceil((status.retryAt - Date.now()) / 1000);
    const when = seconds > 0 ? `trying again in ${String(seconds)} s` : "trying again now";
    setText(this.words, `The server cannot be reached; ${when}. What you write is kept.`);
  }
}
