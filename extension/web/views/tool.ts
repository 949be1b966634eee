/** A tool card: what was called, how it goes, its live output, its changes, and the question it may ask or be. */

import type { Approval } from "../approvals.js";
import { h, setAttribute, setChildren, setHidden, setText } from "../dom.js";
import { icon } from "../icons.js";
import { toolText, type FileDiff, type Tool } from "../items.js";
import { iconOf } from "../tools.js";
import { dict, number, text } from "../wire.js";
import { ApprovalView } from "./approval.js";
import { diffView } from "./diff.js";
import { Terminal } from "./terminal.js";

export interface ToolContext {
  shorten: (path: string) => string;
  answer: (requestId: string, optionId: string) => void;
}

type Phase = "waiting" | "running" | "done" | "failed" | "denied" | "skipped";

const PHASES: Record<Phase, string> = {
  waiting: "waits for you",
  running: "running",
  done: "done",
  failed: "failed",
  denied: "denied",
  skipped: "no answer",
};

/** Calls that change files. */
const CHANGES = new Set(["edit", "delete", "move"]);

export class ToolView {
  readonly element = h("article", { class: "item tool" });
  private readonly toggle = h("button", { class: "tool-head", type: "button" });
  private readonly title = h("span", { class: "tool-title" });
  private readonly note = h("span", { class: "tool-note" });
  private readonly state = h("span", { class: "tool-state" });
  private readonly body = h("div", { class: "tool-body" });
  private readonly terminal = new Terminal();
  private readonly asked = h("p", { class: "tool-asked" });
  private readonly answer = h("p", { class: "tool-answer" });
  private diffs: { of: FileDiff[]; views: HTMLElement[] } = { of: [], views: [] };
  private approval: { of: Approval; view: ApprovalView } | null = null;
  private glyph = "";
  /** What the person chose; until then the card decides. */
  private chosen: boolean | null = null;

  constructor(private readonly context: ToolContext) {
    this.toggle.append(h("span", { class: "tool-icon" }), this.title, this.note, this.state);
    this.toggle.addEventListener("click", () => {
      this.chosen = this.body.hidden === true;
      this.open(this.chosen);
    });
    this.element.append(this.toggle, this.body);
  }

  update(tool: Tool, approval: Approval | undefined, running: boolean): void {
    const phase = phaseOf(tool, approval, running);
    this.drawHead(tool, phase);
    const parts: HTMLElement[] = [];
    const output = toolText(tool);
    if (approval === undefined) {
      this.approval = null;
      parts.push(...this.drawDiffs(tool.diffs.value));
      if (asks(tool) && tool.status.value === "completed") {
        const question = text(dict(tool.input.value)["question"]).trim();
        setText(this.asked, question);
        setHidden(this.asked, question === tool.title.value);
        setText(this.answer, output);
        parts.push(this.asked, this.answer);
      } else if (output !== "") {
        this.terminal.update(output);
        parts.push(this.terminal.element);
      }
    } else parts.push(this.drawApproval(approval));
    setChildren(this.body, parts);
    this.toggle.disabled = parts.length === 0;
    this.open(parts.length > 0 && (approval !== undefined || (this.chosen ?? opensItself(tool, phase))));
  }

  focusApproval(): void {
    this.approval?.view.focus();
  }

  private drawHead(tool: Tool, phase: Phase): void {
    const sort = tool.sort.value;
    const glyph = iconOf(tool.name.value, sort);
    if (glyph !== this.glyph) {
      this.glyph = glyph;
      this.toggle.firstElementChild?.replaceChildren(icon(glyph));
    }
    setText(this.title, tool.title.value || "Tool call");
    setText(this.note, noteOf(tool));
    setHidden(this.note, this.note.textContent === "");
    setText(this.state, PHASES[phase]);
    setAttribute(this.element, "data-phase", phase);
    setAttribute(this.element, "data-sort", sort);
  }

  private drawDiffs(diffs: FileDiff[]): HTMLElement[] {
    if (diffs !== this.diffs.of) {
      this.diffs = { of: diffs, views: diffs.map((change) => diffView(change, this.context.shorten)) };
    }
    return this.diffs.views;
  }

  private drawApproval(approval: Approval): HTMLElement {
    if (this.approval?.of !== approval) {
      const { shorten, answer } = this.context;
      this.approval = { of: approval, view: new ApprovalView(approval, shorten, answer) };
    }
    this.approval.view.update();
    return this.approval.view.element;
  }

  private open(open: boolean): void {
    setHidden(this.body, !open);
    setAttribute(this.toggle, "aria-expanded", String(open));
  }
}

function phaseOf(tool: Tool, approval: Approval | undefined, running: boolean): Phase {
  if (approval !== undefined) return "waiting";
  const status = tool.status.value;
  if (asks(tool)) {
    if (status === "completed") return "done";
    if (status === "failed") return text(tool.facts.value["error"]) === "aborted" ? "skipped" : "failed";
    return running ? "waiting" : "skipped";
  }
  if (text(tool.facts.value["synthetic"]) === "denied" || tool.decision.value === "denied") return "denied";
  if (status === "completed") return exitCode(tool) === 0 ? "done" : "failed";
  if (status === "failed") return "failed";
  return running ? "running" : "failed";
}

/** Commands and changes show what they did; what was only looked up stays folded. */
function opensItself(tool: Tool, phase: Phase): boolean {
  if (tool.diffs.value.length > 0) return true;
  if (asks(tool)) return phase === "done";
  return tool.sort.value === "execute" ? phase !== "denied" : phase === "failed" && CHANGES.has(tool.sort.value);
}

/** A question to the user: its card in the transcript says what was asked and answered. */
function asks(tool: Tool): boolean {
  return tool.name.value === "ask";
}

/** How a command ended; 0 while it runs, and where it was the call's purpose to end it. */
function exitCode(tool: Tool): number {
  return tool.name.value === "shell_kill" ? 0 : (number(tool.facts.value["exit_code"]) ?? 0);
}

function noteOf(tool: Tool): string {
  const facts = tool.facts.value;
  const code = exitCode(tool);
  const took = tool.started === undefined || tool.ended.value === undefined ? NaN : tool.ended.value - tool.started;
  return [
    code === 0 ? "" : `exit ${String(code)}`,
    asks(tool) ? "" : text(facts["error"]).replaceAll("_", " "),
    took >= 1000 && !asks(tool) ? duration(took) : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

export function duration(milliseconds: number): string {
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${String(Math.round(seconds))} s`;
  return `${String(Math.floor(seconds / 60))} min ${String(Math.round(seconds % 60))} s`;
}
