/** The question whether a call may run, with its answers on keys. */

import type { Approval } from "../approvals.js";
import { h } from "../dom.js";
import type { PermissionOption } from "../wire.js";
import { diffView } from "./diff.js";

const KEYS: Record<string, string> = { allow_once: "y", allow_always: "a", reject_once: "n", reject_always: "d" };

const CHANGES = new Set(["edit", "delete", "move"]);

export class ApprovalView {
  readonly element = h("section", { class: "approval", tabindex: "-1", role: "group" });
  private readonly buttons: HTMLButtonElement[] = [];

  constructor(
    private readonly approval: Approval,
    shorten: (path: string) => string,
    answer: (requestId: string, optionId: string) => void,
  ) {
    const question = `May Etude ${subjectOf(approval)}?`;
    const command = approval.command === "" && approval.diffs.length === 0 ? approval.title : approval.command;
    this.element.setAttribute("aria-label", `${question} ${approval.title}`);
    this.element.append(h("p", { class: "approval-question", text: question }));
    if (command !== "") this.element.append(h("pre", { class: "approval-command", text: command }));
    if (approval.reason !== "") this.element.append(h("p", { class: "approval-reason", text: approval.reason }));
    for (const change of approval.diffs) this.element.append(diffView(change, shorten));
    const row = h("div", { class: "approval-answers" });
    for (const option of approval.options) row.append(this.button(option, answer));
    this.element.append(row);
    this.element.addEventListener("keydown", (event) => {
      this.key(event);
    });
  }

  /** While the connection is away there is nobody to answer. */
  update(): void {
    const away = this.approval.reply === null;
    for (const button of this.buttons) button.disabled = away;
  }

  focus(): void {
    this.buttons[0]?.focus({ preventScroll: true });
  }

  private button(option: PermissionOption, answer: (requestId: string, optionId: string) => void): HTMLButtonElement {
    const key = KEYS[option.kind] ?? "";
    const style = option.kind === "allow_once" ? "primary" : option.kind.startsWith("reject") ? "danger" : "";
    const button = h("button", { class: style, type: "button", "data-kind": option.kind }, option.name);
    if (key !== "") {
      button.append(h("kbd", { text: key.toUpperCase(), "aria-hidden": "true" }));
      button.setAttribute("aria-keyshortcuts", key);
    }
    button.addEventListener("click", () => {
      answer(this.approval.requestId, option.optionId);
    });
    this.buttons.push(button);
    return button;
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const index = this.approval.options.findIndex(({ kind }) => KEYS[kind] === event.key.toLowerCase());
    const button = this.buttons[index];
    if (button !== undefined) {
      event.preventDefault();
      button.click();
    } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const at = this.buttons.indexOf(document.activeElement as HTMLButtonElement);
      const step = event.key === "ArrowRight" ? 1 : -1;
      this.buttons[(at + step + this.buttons.length) % this.buttons.length]?.focus();
    }
  }
}

function subjectOf({ command, kind }: Approval): string {
  if (command !== "") return "run this command";
  return CHANGES.has(kind) ? "make this change" : "make this call";
}
