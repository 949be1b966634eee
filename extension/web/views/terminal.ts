/** Output of a command, as a terminal would show it, in a document of bounded size. */

import { parseAnsi } from "../ansi.js";
import { h } from "../dom.js";

/** Lines and code units of output that become elements; of the rest, only the end is kept. */
const LINES = 400;
const UNITS = 60_000;

export class Terminal {
  readonly element = h("pre", { class: "terminal", tabindex: "0", "aria-label": "Output" });
  private shown = "";
  private cut = false;

  /** Show the end of the output; new characters are appended where possible. */
  update(output: string): void {
    if (output === this.shown) return;
    const stuck = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - 24;
    const grown = output.startsWith(this.shown) ? output.slice(this.shown.length) : null;
    const simple = grown !== null && !this.cut && !output.includes("\u001b") && !output.includes("\r") && output.length <= UNITS;
    this.shown = output;
    if (simple && this.element.childNodes.length < LINES) this.element.append(grown);
    else this.redraw(output);
    if (stuck) this.element.scrollTop = this.element.scrollHeight;
  }

  private redraw(output: string): void {
    const tail = lastLines(output.slice(-UNITS), LINES);
    this.cut = tail.length < output.length;
    const note = this.cut ? [h("span", { class: "terminal-cut", text: "… earlier output is not shown …\n" })] : [];
    const runs = parseAnsi(tail).map(({ text, classes }) => (classes === "" ? text : h("span", { class: classes, text })));
    this.element.replaceChildren(...note, ...runs);
  }
}

function lastLines(content: string, count: number): string {
  let at = content.length - (content.endsWith("\n") ? 1 : 0);
  for (let lines = 0; lines < count; lines += 1) {
    at = content.lastIndexOf("\n", at - 1);
    if (at < 0) return content;
  }
  return content.slice(at + 1);
}
