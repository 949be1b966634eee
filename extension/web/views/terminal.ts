/** Output of a command, as a terminal would show it, in a document of bounded size. */

import { parseAnsi } from "../ansi.js";
import { h } from "../dom.js";

/** Lines and code units of output that become elements; of the rest, only the end is kept. */
const LINES = 400;
const UNITS = 60_000;

export class Terminal {
  readonly element = h("pre", { class: "terminal", tabindex: "0", "aria-label": "Output" });
  private readonly content = h("code");
  private shown = "";
  private cut = false;

  constructor() {
    this.element.append(this.content);
  }

  /** Show the end of the output; new characters are appended where possible. */
  update(output: string): void {
    if (output === this.shown) return;
    const grown = output.startsWith(this.shown) ? output.slice(this.shown.length) : null;
    const plain = !output.includes("\u001b") && !output.includes("\r");
    this.shown = output;
    const small = output.length <= UNITS && this.content.childNodes.length < LINES;
    if (grown !== null && plain && small && !this.cut) this.content.append(grown);
    else this.redraw(output);
  }

  private redraw(output: string): void {
    const tail = lastLines(output.slice(-UNITS), LINES);
    this.cut = tail.length < output.length;
    const note = this.cut ? [h("span", { class: "terminal-cut", text: "… earlier output is not shown …\n" })] : [];
    const runs = parseAnsi(tail).map(({ text, classes }) => (classes === "" ? text : h("span", { class: classes, text })));
    this.content.replaceChildren(...note, ...runs);
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
