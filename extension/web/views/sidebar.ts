/** The list of sessions: open one, begin one, delete one. */

import { h, setChildren } from "../dom.js";
import { icon, mark } from "../icons.js";
import type { SessionRow } from "../wire.js";

export interface SidebarActions {
  open: (sessionId: string | null) => void;
  remove: (sessionId: string) => void;
}

/** What a session does, where this page knows it. */
export type SessionSort = "waiting" | "running";

const DAY_MS = 86_400_000;

export class Sidebar {
  readonly element = h("nav", { class: "sidebar", "aria-label": "Sessions" });
  private readonly list = h("div", { class: "session-groups" });
  private readonly fresh = h("button", { class: "new-session", type: "button" }, icon("plus"), "New session");
  private key = "";
  /** The session whose deletion waits for a second press. */
  private confirming: string | null = null;
  private rows: SessionRow[] | null = null;
  private current: string | null = null;
  private sorts: ReadonlyMap<string, SessionSort> = new Map();

  constructor(private readonly actions: SidebarActions) {
    const brand = h("p", { class: "brand" }, mark(), h("span", { class: "wordmark", text: "Etude" }));
    this.fresh.addEventListener("click", () => {
      this.actions.open(null);
    });
    this.element.append(brand, this.fresh, this.list);
    document.addEventListener("pointerdown", ({ target }) => {
      const sure = target instanceof Element && target.closest(".sure") !== null;
      if (this.confirming !== null && !sure) this.confirm(null);
    });
  }

  update(rows: SessionRow[] | null, current: string | null, sorts: ReadonlyMap<string, SessionSort>): void {
    const key = JSON.stringify([rows, current, [...sorts], this.confirming]);
    this.sorts = sorts;
    if (key === this.key) return;
    this.key = key;
    this.rows = rows;
    this.current = current;
    this.fresh.classList.toggle("current", current === null);
    if (rows === null) return;
    const groups = new Map<string, HTMLElement[]>();
    for (const row of rows) {
      const name = dayName(row.updatedAt);
      groups.set(name, [...(groups.get(name) ?? []), this.row(row, sorts.get(row.sessionId) ?? "")]);
    }
    const focused = (document.activeElement as HTMLElement | null)?.dataset["key"];
    const nodes = [...groups].map(([name, items]) =>
      h("section", {}, h("h2", { text: name }), h("ul", {}, ...items)),
    );
    setChildren(this.list, nodes.length > 0 ? nodes : [h("p", { class: "no-sessions", text: "No sessions yet." })]);
    if (focused !== undefined) this.list.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  private row(row: SessionRow, sort: SessionSort | ""): HTMLElement {
    const { sessionId } = row;
    const name = row.title ?? "Untitled";
    const open = h(
      "button",
      { class: "session", type: "button", "data-key": `open-${sessionId}`, title: `${name}\n${row.cwd}` },
      h("span", { class: `session-dot ${sort}` }),
      h("span", { class: "session-title", text: name }),
      sort !== "" && h("span", { class: "sr-only", text: sort === "waiting" ? ", waits for you" : ", running" }),
    );
    if (sessionId === this.current) open.setAttribute("aria-current", "page");
    open.addEventListener("click", () => {
      this.actions.open(sessionId);
    });
    return h("li", {}, open, this.deleteButton(sessionId, name));
  }

  private deleteButton(sessionId: string, name: string): HTMLElement {
    const sure = this.confirming === sessionId;
    const button = h(
      "button",
      { class: sure ? "delete sure" : "delete", type: "button", "data-key": `delete-${sessionId}` },
      sure ? "Delete?" : icon("trash"),
    );
    button.setAttribute("aria-label", sure ? `Really delete “${name}”` : `Delete “${name}”`);
    button.addEventListener("click", () => {
      if (!sure) this.confirm(sessionId);
      else {
        this.confirming = null;
        this.actions.remove(sessionId);
      }
    });
    button.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.confirm(null);
    });
    return button;
  }

  private confirm(sessionId: string | null): void {
    this.confirming = sessionId;
    this.update(this.rows, this.current, this.sorts);
  }
}

function dayName(updatedAt: string | null | undefined): string {
  const time = Date.parse(updatedAt ?? "");
  if (Number.isNaN(time)) return "Earlier";
  const today = new Date().setHours(0, 0, 0, 0);
  if (time >= today) return "Today";
  if (time >= today - DAY_MS) return "Yesterday";
  return time >= today - 6 * DAY_MS ? "This week" : "Earlier";
}
