/** A message that is on its way, or that the server refused. */

import { h, setHidden, setText } from "../dom.js";
import type { Outgoing } from "../outbox.js";

export interface OutgoingActions {
  resend: (id: string) => void;
  withdraw: (id: string) => void;
}

export class OutgoingView {
  readonly element = h("article", { class: "item user outgoing", "aria-label": "You, on its way" });
  private readonly error = h("p", { class: "outgoing-error", role: "alert", hidden: true });
  private readonly actions = h("div", { class: "outgoing-actions", hidden: true });

  constructor(message: Outgoing, { resend, withdraw }: OutgoingActions) {
    const again = h("button", { type: "button", text: "Send again", onclick: () => { resend(message.id); } });
    const edit = h("button", { type: "button", text: "Edit", onclick: () => { withdraw(message.id); } });
    this.actions.append(again, edit);
    const body = h("div", { class: "user-text", text: message.text });
    this.element.append(h("div", { class: "user-box" }, body, this.error, this.actions));
  }

  update(message: Outgoing): void {
    const failed = message.error !== "";
    setText(this.error, failed ? `Not sent: ${message.error}` : "");
    setHidden(this.error, !failed);
    setHidden(this.actions, !failed);
    this.element.classList.toggle("failed", failed);
  }
}
