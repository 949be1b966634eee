/** What a transcript is made of. Every item knows its place (`at`) and when it last changed (`revision`). */

import type { Characters } from "./characters.js";
import type { Dict } from "./wire.js";

/** A value that the latest event wins, in whatever order events arrive. */
export class Cell<T> {
  at = -1;
  constructor(public value: T) {}

  /** True when the value was taken. */
  set(at: number, value: T): boolean {
    if (at < this.at) return false;
    this.at = at;
    this.value = value;
    return true;
  }
}

interface Placed {
  id: string;
  /** Order in the transcript; Infinity while nothing of it is stored. */
  at: number;
  /** Order of first sight: breaks ties between items that are not stored yet. */
  arrival: number;
  revision: number;
  /** Milliseconds since the epoch, of the event that placed it. */
  time?: number;
}

export type Speaker = "user" | "agent" | "thought" | "summary";

export interface Message extends Placed {
  kind: "message";
  speaker: Speaker;
  characters: Characters;
  /** Whole blocks by place, for messages that are not streamed. */
  blocks: Map<number, string>;
  /** What stands above a summary: what it gained. */
  title?: string;
  /** The turn it belongs to; a second message of the user in one turn was added while it ran. */
  turn: number | undefined;
}

export interface FileDiff {
  path: string;
  /** null: the file did not exist before. */
  old: string | null;
  new: string;
  /** Where the texts begin in the file, from 1 (a large file is not sent whole). */
  line: number;
  deleted: boolean;
}

export type ToolStatus = "pending" | "in_progress" | "completed" | "failed";

export interface Tool extends Placed {
  kind: "tool";
  title: Cell<string>;
  name: Cell<string>;
  /** ACP tool kind: read, edit, search, execute, … */
  sort: Cell<string>;
  status: Cell<ToolStatus>;
  input: Cell<unknown>;
  /** Text of the result, once there is one. */
  result: Cell<string | null>;
  diffs: Cell<FileDiff[]>;
  paths: Cell<string[]>;
  /** ACP's `rawOutput`: exit code, error class and the like. */
  facts: Cell<Dict>;
  /** How a request for approval of it ended: allowed, denied, cancelled. */
  decision: Cell<string | null>;
  output: Characters;
  /** Milliseconds since the epoch: the first and the last that the log says of it. */
  started: number | undefined;
  ended: Cell<number | undefined>;
}

export type NoticeLevel = "end" | "info" | "warning" | "error";

export interface Notice extends Placed {
  kind: "notice";
  level: NoticeLevel;
  text: string;
  detail: string;
}

export type Item = Message | Tool | Notice;

export function messageText(message: Message): string {
  if (message.blocks.size === 0) return message.characters.text;
  const places = [...message.blocks.keys()].sort((left, right) => left - right);
  return places.map((place) => message.blocks.get(place)).join(message.speaker === "user" ? "\n" : "");
}

/** What a finished call says, else what it has written so far. */
export function toolText(tool: Tool): string {
  return tool.result.value ?? tool.output.text;
}

export function byPlace(left: Item, right: Item): number {
  return left.at === right.at ? left.arrival - right.arrival : left.at < right.at ? -1 : 1;
}
