/** What was said: by the user, by the agent, and what the agent thought (folded). */

import { h, setAttribute, setHidden, setText } from "../dom.js";
import { icon } from "../icons.js";
import { messageText, type Message, type Notice } from "../items.js";
import { copyButton } from "./copy.js";
import { Markdown } from "./markdown.js";

export class UserView {
  readonly element = h("article", { class: "item user" });
  private readonly measure = h("span", { class: "measure", "aria-hidden": "true" });
  private readonly label = h("p", { class: "user-label", hidden: true, text: "added while working" });
  private readonly body = h("div", { class: "user-text" });

  constructor() {
    this.element.setAttribute("aria-label", "You");
    this.element.append(this.measure, h("div", { class: "user-box" }, this.label, this.body));
  }

  /** `turn`: which turn it opens, from 1; null for a message that was added to a running turn. */
  update(message: Message, turn: number | null): void {
    setText(this.body, messageText(message));
    setText(this.measure, turn === null ? "" : String(turn));
    setHidden(this.label, turn !== null);
    this.element.classList.toggle("opens-turn", turn !== null);
  }
}

export class AgentView {
  readonly element = h("article", { class: "item agent", "aria-label": "Etude" });
  private readonly markdown = new Markdown();
  private readonly tools = h("div", { class: "item-tools" });
  private text = "";

  constructor() {
    this.tools.append(copyButton("Copy the answer", () => this.text));
    this.element.append(this.markdown.element, this.tools);
  }

  update(message: Message, growing: boolean): void {
    this.text = messageText(message);
    this.markdown.update(this.text, growing);
    this.element.classList.toggle("growing", growing);
    setHidden(this.element, this.text.trim() === "" && !growing);
  }
}

/** Thoughts and self-summaries: one line until a person wants more. */
export class FoldedView {
  readonly element = h("article", { class: "item folded" });
  private readonly summary = h("summary");
  private readonly label = h("span", { class: "folded-label" });
  private readonly preview = h("span", { class: "folded-preview" });
  private readonly details = h("details");
  private readonly markdown = new Markdown();
  private pending: { text: string; growing: boolean } | null = null;

  constructor(private readonly names: { growing: string; done: string }) {
    this.summary.append(icon("chevron"), this.label, this.preview);
    this.details.append(this.summary, this.markdown.element);
    this.details.addEventListener("toggle", () => {
      this.draw();
    });
    this.element.append(this.details);
  }

  update(message: Message, growing: boolean): void {
    const text = messageText(message);
    this.pending = { text, growing };
    setText(this.label, growing ? this.names.growing : (message.title ?? this.names.done));
    setText(this.preview, lastLine(text));
    this.element.classList.toggle("growing", growing);
    this.draw();
  }

  /** Folded text costs nothing: it is rendered when it is opened. */
  private draw(): void {
    if (!this.details.open || this.pending === null) return;
    this.markdown.update(this.pending.text, this.pending.growing);
  }
}

function lastLine(content: string): string {
  const end = content.trimEnd();
  return end.slice(end.lastIndexOf("\n") + 1).replace(/[*_`#]/g, "").slice(0, 160);
}

export function noticeView(notice: Notice): HTMLElement {
  const element = h("article", { class: `item notice ${notice.level}` });
  if (notice.level === "error") setAttribute(element, "role", "alert");
  if (notice.text !== "") element.append(h("p", { text: notice.text }));
  if (notice.detail !== "") element.append(h("p", { class: "notice-detail", text: notice.detail }));
  return element;
}
