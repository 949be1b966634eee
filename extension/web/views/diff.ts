/** One file's change: removed and added lines with their numbers, and what changed inside a line. */

import { h } from "../dom.js";
import type { FileDiff } from "../items.js";
import { diffTexts, type DiffLine } from "../lines.js";
import { copyButton } from "./copy.js";

/** Lines shown before a person asks for all of them. */
const FIRST_LINES = 80;

/** A diff with its heading. `shorten` turns a path into what a person reads. */
export function diffView(change: FileDiff, shorten: (path: string) => string): HTMLElement {
  const { hunks, added, removed } = diffTexts(change.old ?? "", change.new);
  const path = shorten(change.path);
  const verb = change.old === null ? "new" : change.deleted ? "deleted" : "";
  const body = h("div", { class: "diff-body", tabindex: "0", role: "group", "aria-label": `Changes of ${path}` });
  const heading = h(
    "figcaption",
    {},
    h("span", { class: "diff-path", text: path, title: change.path }),
    verb !== "" && h("span", { class: "badge", text: verb }),
    h("span", { class: "diff-count" }, h("ins", { text: `+${String(added)}` }), h("del", { text: `−${String(removed)}` })),
    copyButton("Copy the new text", () => change.new),
  );
  fill(body, hunks, change.line - 1);
  return h("figure", { class: "diff" }, heading, body);
}

function fill(body: HTMLElement, hunks: DiffLine[][], shift: number): void {
  const total = hunks.reduce((sum, hunk) => sum + hunk.length, 0);
  render(body, hunks, shift, FIRST_LINES);
  if (total <= FIRST_LINES) {
    if (total === 0) body.append(h("p", { class: "diff-empty", text: "No lines differ." }));
    return;
  }
  const more = h("button", { class: "quiet more", type: "button", text: `Show all ${String(total)} lines` });
  more.addEventListener("click", () => {
    body.replaceChildren();
    render(body, hunks, shift, Infinity);
  });
  body.append(more);
}

function render(body: HTMLElement, hunks: DiffLine[][], shift: number, limit: number): void {
  let left = limit;
  const lines = h("div", { class: "diff-lines" });
  body.append(lines);
  for (const [index, hunk] of hunks.entries()) {
    if (left <= 0) return;
    if (index > 0) lines.append(h("div", { class: "diff-gap", "aria-hidden": "true", text: "⋯" }));
    for (const line of hunk.slice(0, left)) lines.append(lineView(line, shift));
    left -= hunk.length;
  }
}

const SIGNS = { same: " ", add: "+", remove: "−" } as const;

function lineView(line: DiffLine, shift: number): HTMLElement {
  const row = h("div", { class: `diff-line ${line.kind}` });
  const numbered = (value: number | null): string => (value === null ? "" : String(value + shift));
  const content = h("span", { class: "diff-text" });
  if (line.changed === undefined) content.textContent = line.text;
  else {
    const [from, to] = line.changed;
    const inner = line.text.slice(from, to);
    content.append(line.text.slice(0, from), ...(inner === "" ? [] : [h("mark", { text: inner })]), line.text.slice(to));
  }
  row.append(
    h("span", { class: "diff-number", text: numbered(line.old) }),
    h("span", { class: "diff-number", text: numbered(line.new) }),
    h("span", { class: "diff-sign", text: SIGNS[line.kind] }),
    content,
  );
  return row;
}
