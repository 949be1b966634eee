/** How ACP's `tool_call` and `tool_call_update` change a tool card. */

import { Characters } from "./characters.js";
import type { IconName } from "./icons.js";
import { Cell, type FileDiff, type Tool, type ToolStatus } from "./items.js";
import { blockText, dict, isDict, list, number, text, type Dict, type Mark } from "./wire.js";

/** Code units of live output that are kept for showing. */
export const OUTPUT_KEPT = 200_000;

const STATUSES = new Set<string>(["pending", "in_progress", "completed", "failed"]);

/** Tools whose kind says too little of them. */
const OF_NAME = new Map<string, IconName>([
  ["ask", "help"],
  ["diagnostics", "diagnose"],
  ["list", "folder"],
  ["symbols", "outline"],
  ["todo", "list"],
]);

const OF_KIND = new Map<string, IconName>([
  ["delete", "trash"],
  ["edit", "edit"],
  ["execute", "execute"],
  ["fetch", "down"],
  ["move", "move"],
  ["read", "read"],
  ["search", "search"],
  ["think", "think"],
]);

export function iconOf(name: string, kind: string): IconName {
  if (name.startsWith("mcp__")) return "plug";
  return OF_NAME.get(name) ?? OF_KIND.get(kind) ?? "other";
}

export function newTool(id: string, arrival: number): Tool {
  return {
    kind: "tool",
    id,
    at: Infinity,
    arrival,
    revision: 0,
    title: new Cell(""),
    name: new Cell(""),
    sort: new Cell("other"),
    status: new Cell<ToolStatus>("pending"),
    input: new Cell<unknown>(undefined),
    result: new Cell<string | null>(null),
    diffs: new Cell<FileDiff[]>([]),
    paths: new Cell<string[]>([]),
    facts: new Cell<Dict>({}),
    decision: new Cell<string | null>(null),
    output: new Characters(OUTPUT_KEPT),
    started: undefined,
    ended: new Cell<number | undefined>(undefined),
  };
}

/** Take the fields that an update names; absent ones stay as they are. */
export function applyToolUpdate(tool: Tool, update: Dict, mark: Mark, at: number): void {
  if (update["title"] !== undefined) tool.title.set(at, text(update["title"]));
  if (update["kind"] !== undefined) tool.sort.set(at, text(update["kind"]));
  const name = dict(dict(update["_meta"])["etude"])["name"] ?? dict(mark)["name"];
  if (name !== undefined) tool.name.set(at, text(name));
  if (update["rawInput"] !== undefined) tool.input.set(at, update["rawInput"]);
  if (Array.isArray(update["locations"])) {
    tool.paths.set(at, update["locations"].map((location) => text(dict(location)["path"])).filter(Boolean));
  }
  const status = text(update["status"]);
  if (STATUSES.has(status)) {
    tool.status.set(at, status as ToolStatus);
    timing(tool, status, mark, at);
  }
  if (update["rawOutput"] !== undefined) tool.facts.set(at, dict(update["rawOutput"]));
  if (Array.isArray(update["content"])) takeContent(tool, update["content"], at);
}

function timing(tool: Tool, status: string, mark: Mark, at: number): void {
  if (mark.ts === undefined) return;
  const time = mark.ts / 1000;
  if (status === "completed" || status === "failed") tool.ended.set(at, time);
  else tool.started = Math.min(tool.started ?? Infinity, time);
}

/** ACP's `content` replaces what was there: diffs, and the text of the result. */
function takeContent(tool: Tool, content: unknown[], at: number): void {
  const blocks = list(content).filter(isDict);
  const diffs = diffsOf(blocks, tool.sort.value);
  if (diffs.length > 0) tool.diffs.set(at, diffs);
  const texts = blocks.filter(({ type }) => type === "content").map((block) => blockText(block["content"]));
  if (texts.length > 0) tool.result.set(at, texts.join("\n"));
}

/** The diffs among content blocks of a call of this kind. A move changes no text: its title says it all. */
export function diffsOf(blocks: Dict[], kind: string): FileDiff[] {
  return kind === "move" ? [] : blocks.filter(({ type }) => type === "diff").map(toDiff);
}

/** One ACP diff block. */
function toDiff(block: Dict): FileDiff {
  const old = block["oldText"];
  const facts = dict(dict(block["_meta"])["etude"]);
  return {
    path: text(block["path"]),
    old: typeof old === "string" ? old : null,
    new: text(block["newText"]),
    line: number(facts["line"]) ?? 1,
    deleted: facts["deleted"] === true,
  };
}
