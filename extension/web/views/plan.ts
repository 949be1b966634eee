/** The agent's to-dos: one line above the composer, all of them when opened; and what waits behind the turn. */

import { h, setChildren, setHidden, setText } from "../dom.js";
import { icon } from "../icons.js";
import type { QueuedMessage } from "../state.js";
import type { PlanEntry } from "../wire.js";

const STATES: Record<string, string> = { pending: "to do", in_progress: "in progress", completed: "done" };

export class Plan {
  readonly element = h("details", { class: "plan", hidden: true });
  private readonly count = h("span", { class: "plan-count" });
  private readonly current = h("span", { class: "plan-current" });
  private readonly list = h("ul", { class: "plan-list" });
  private drawn: PlanEntry[] | null = null;

  constructor() {
    this.element.append(h("summary", {}, icon("list"), this.current, this.count), this.list);
  }

  update(entries: PlanEntry[]): void {
    if (entries === this.drawn) return;
    this.drawn = entries;
    setHidden(this.element, entries.length === 0);
    const done = entries.filter(({ status }) => status === "completed").length;
    const next = entries.find(({ status }) => status === "in_progress") ?? entries.find(({ status }) => status !== "completed");
    setText(this.count, `${String(done)} of ${String(entries.length)}`);
    setText(this.current, next?.content ?? "All done");
    const rows = entries.map(({ content, status }) => {
      const box = h("span", { class: "plan-box" }, status === "completed" && icon("check"));
      return h("li", { class: status }, box, content, h("span", { class: "sr-only", text: `, ${STATES[status] ?? status}` }));
    });
    setChildren(this.list, rows);
  }
}

export class Queue {
  readonly element = h("ul", { class: "queue", "aria-label": "Queued messages", hidden: true });

  update(queued: QueuedMessage[]): void {
    setHidden(this.element, queued.length === 0);
    if (queued.length === 0 && this.element.childElementCount === 0) return;
    setChildren(
      this.element,
      queued.map(({ text }) => h("li", {}, h("span", { class: "badge", text: "queued" }), h("span", { class: "queue-text", text }))),
    );
  }
}
