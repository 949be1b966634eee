/**
 * The state of one session as a client sees it: a fold of what arrives. Deterministic and free of input
 * and output. Stored frames may come in any order and more than once; live ones may also be lost: once
 * every stored frame is in, the state is the same.
 */

import { Characters } from "./characters.js";
import { eventData, noticeOf, type TurnEvent } from "./events.js";
import { Cell, byPlace, type Item, type Message, type Notice, type Speaker, type Tool } from "./items.js";
import { applyToolUpdate, newTool } from "./tools.js";
import {
  blockText,
  dict,
  isDict,
  list,
  markOf,
  number,
  text,
  type Dict,
  type Mark,
  type Notification,
  type PlanEntry,
} from "./wire.js";

/** Places of the parts of one event lie between its `seq` and the next. */
const PARTS = 1024;

export interface UsageFacts {
  used: number;
  size: number;
  cost: number | null;
}

export interface QueuedMessage {
  id: string;
  at: number;
  text: string;
}

const SPEAKERS: Record<string, Speaker> = {
  user_message_chunk: "user",
  agent_message_chunk: "agent",
  agent_thought_chunk: "thought",
  compaction_summary_chunk: "summary",
};

export class SessionState {
  /** Every event up to here is in, with all its parts. */
  lastSeq = 0;
  term = 0;
  readonly items = new Map<string, Item>();
  /** Ids whose item changed since the view last looked. */
  readonly dirty = new Set<string>();
  readonly title = new Cell<string | null>(null);
  readonly mode = new Cell<string>("");
  readonly model = new Cell<string>("");
  readonly options = new Cell<unknown[]>([]);
  readonly plan = new Cell<PlanEntry[]>([]);
  readonly usage = new Cell<UsageFacts>({ used: 0, size: 0, cost: null });
  readonly turn = new Cell<TurnEvent>({ running: false, turn: 0 });
  private readonly queue = new Map<string, QueuedMessage>();
  private readonly taken = new Set<string>();
  private readonly ahead = new Set<number>();
  private readonly parts = new Map<number, Set<number>>();
  private readonly marks = new Map<string, { seq: number; end: number }[]>();
  private arrivals = 0;
  private unnumbered = 0;

  constructor(readonly sessionId: string) {}

  get running(): boolean {
    return this.turn.value.running;
  }

  /** Whether an event is known to be missing between those that are in. */
  get gap(): boolean {
    return this.ahead.size > 0;
  }

  /** Messages that wait for a turn of their own, oldest first. */
  get queued(): QueuedMessage[] {
    return [...this.queue.values()].filter(({ id }) => !this.taken.has(id)).sort((a, b) => a.at - b.at);
  }

  /** The transcript in order. */
  ordered(): Item[] {
    return [...this.items.values()].sort(byPlace);
  }

  /** Whether the log has this message of the user, in whatever form. */
  has(messageId: string): boolean {
    return this.taken.has(messageId) || this.queue.has(messageId);
  }

  /** Take one notification into account. */
  apply({ method, params }: Notification): void {
    if (method === "_etude/stored") {
      this.stored(text(params["messageId"]), number(params["seq"]) ?? 0, number(params["end"]) ?? 0);
    } else if (method === "_etude/event") {
      const mark: Mark = { ...(params as Mark), ...markOf(params) };
      if (this.admit(mark)) this.event(text(params["type"]), eventData(params), mark);
    } else if (method === "session/update") {
      const update = dict(params["update"]);
      const mark = markOf(params);
      if (this.admit(mark)) this.update(text(update["sessionUpdate"]), update, mark);
    }
  }

  /** What the answer to an attach says of the session as of `lastSeq`. */
  attached(lastSeq: number, term: number, facts: Dict): void {
    const at = lastSeq * PARTS + PARTS - 1;
    this.raise(term);
    if (text(facts["mode"])) this.mode.set(at, text(facts["mode"]));
    if (text(facts["model"])) this.model.set(at, text(facts["model"]));
    if (text(facts["title"])) this.title.set(at, text(facts["title"]));
    if (Array.isArray(facts["configOptions"])) this.options.set(at, facts["configOptions"]);
    const used = number(facts["contextTokens"]);
    if (used !== undefined) {
      this.usage.set(at, { used, size: number(facts["contextWindow"]) ?? 0, cost: this.usage.value.cost });
    }
    if (typeof facts["running"] === "boolean") {
      this.turn.set(at, { running: facts["running"], turn: number(facts["turn"]) ?? this.turn.value.turn });
    }
  }

  /** False for what is already in or comes from an owner that lost the session. */
  private admit(mark: Mark): boolean {
    if (mark.live === true) {
      if ((mark.term ?? this.term) < this.term) return false;
      this.raise(mark.term ?? this.term);
      return true;
    }
    if (mark.term !== undefined) this.raise(mark.term);
    const { seq } = mark;
    if (seq === undefined) return true;
    return seq > this.lastSeq && !this.ahead.has(seq) && !this.parts.get(seq)?.has(mark.part ?? 0);
  }

  private raise(term: number): void {
    if (term <= this.term) return;
    const first = this.term === 0;
    this.term = term;
    if (first) return;
    this.marks.clear();
    for (const item of this.items.values()) {
      if (item.kind === "notice") continue;
      const characters = item.kind === "tool" ? item.output : item.characters;
      if (!characters.unsettled) continue;
      characters.dropLive();
      this.touch(item);
      if (item.kind === "message" && item.at === Infinity) this.items.delete(item.id);
    }
  }

  private update(kind: string, update: Dict, mark: Mark): void {
    const at = this.place(mark);
    const speaker = SPEAKERS[kind];
    if (speaker !== undefined) {
      this.chunk(speaker, update, mark, at);
      return;
    }
    if (kind === "tool_call" || kind === "tool_call_update") this.toolUpdate(update, mark, at);
    else if (kind === "compaction_update") this.compaction(update, mark, at);
    else this.fact(kind, update, at);
    this.receive(mark);
  }

  private fact(kind: string, update: Dict, at: number): void {
    if (kind === "plan") {
      const entries = list(update["entries"]).filter(isDict);
      this.plan.set(
        at,
        entries.map((entry) => ({ content: text(entry["content"]), status: text(entry["status"]) })),
      );
    } else if (kind === "current_mode_update") {
      this.mode.set(at, text(update["currentModeId"]));
    } else if (kind === "config_option_update") {
      this.options.set(at, list(update["configOptions"]));
    } else if (kind === "session_info_update" && update["title"] !== undefined) {
      this.title.set(at, text(update["title"]) || null);
    } else if (kind === "usage_update") {
      const cost = number(dict(update["cost"])["amount"]) ?? null;
      this.usage.set(at, { used: number(update["used"]) ?? 0, size: number(update["size"]) ?? 0, cost });
    } else if (kind === "notice") {
      const words = text(update["text"]) || text(update["message"]) || "Something happened.";
      this.notice({ level: "info", text: words, detail: "" }, at, undefined);
    }
  }

  /** A self-summary: what the conversation goes on from, folded. */
  private compaction(update: Dict, mark: Mark, at: number): void {
    const message = this.message("summary", text(update["compactionId"]) || `at-${String(at)}`);
    this.touch(message);
    message.at = Math.min(message.at, at);
    message.turn = mark.turn ?? message.turn;
    if (mark.ts !== undefined) message.time = mark.ts / 1000;
    const title = text(dict(dict(update["_meta"])["etude"])["title"]);
    if (title !== "") message.title = title;
    if (update["summary"] === undefined) return;
    message.blocks.clear();
    list(update["summary"]).forEach((block, index) => message.blocks.set(index, blockText(block)));
  }

  private chunk(speaker: Speaker, update: Dict, mark: Mark, at: number): void {
    const id = mark.messageId ?? (text(update["messageId"]) || `at-${String(at)}`);
    const message = this.message(speaker, id);
    const content = blockText(update["content"]);
    this.touch(message);
    if (speaker === "user") this.taken.add(id);
    if (mark.live === true) {
      this.finish(message.characters.live(mark.offset ?? message.characters.end, content));
      return;
    }
    message.at = Math.min(message.at, at);
    message.turn = mark.turn ?? message.turn;
    if (mark.offset === undefined || mark.seq === undefined) {
      if (mark.ts !== undefined) message.time = Math.min(message.time ?? Infinity, mark.ts / 1000);
      message.blocks.set(at, content);
      this.receive(mark);
    } else {
      this.finish(message.characters.store(mark.seq, mark.offset, content));
    }
  }

  private message(speaker: Speaker, id: string): Message {
    const key = `${speaker}:${id}`;
    const known = this.items.get(key);
    if (known?.kind === "message") return known;
    const message: Message = {
      kind: "message",
      speaker,
      id: key,
      at: Infinity,
      arrival: (this.arrivals += 1),
      revision: 0,
      characters: new Characters(),
      blocks: new Map(),
      turn: undefined,
    };
    this.items.set(key, message);
    this.adopt(id, message);
    return message;
  }

  private toolUpdate(update: Dict, mark: Mark, at: number): void {
    const id = text(update["toolCallId"]);
    const tool = this.tool(id);
    this.touch(tool);
    if (mark.live === true || mark.offset !== undefined) {
      const content = list(update["content"]).map((block) => blockText(dict(block)["content"])).join("");
      if (mark.live === true) this.finish(tool.output.live(mark.offset ?? tool.output.end, content));
      else this.finish(tool.output.store(mark.seq ?? 0, mark.offset ?? 0, content));
      return;
    }
    tool.at = Math.min(tool.at, at);
    applyToolUpdate(tool, update, mark, at);
  }

  private tool(id: string): Tool {
    const key = `tool:${id}`;
    const known = this.items.get(key);
    if (known?.kind === "tool") return known;
    const tool = newTool(key, (this.arrivals += 1));
    this.items.set(key, tool);
    this.adopt(id, tool);
    return tool;
  }

  /** Marks that came before the first characters of their message. */
  private adopt(id: string, item: Message | Tool): void {
    const early = this.marks.get(id);
    if (early === undefined) return;
    this.marks.delete(id);
    const characters = item.kind === "tool" ? item.output : item.characters;
    for (const { seq, end } of early) {
      this.finish(characters.mark(seq, end));
      if (item.kind === "message") item.at = Math.min(item.at, seq * PARTS);
    }
  }

  private stored(id: string, seq: number, end: number): void {
    if (seq <= this.lastSeq || this.ahead.has(seq)) return;
    const keys = [`agent:${id}`, `thought:${id}`, `tool:${id}`, `summary:${id}`];
    const item = keys.map((key) => this.items.get(key)).find((found) => found !== undefined);
    if (item === undefined || item.kind === "notice") {
      this.marks.set(id, [...(this.marks.get(id) ?? []), { seq, end }]);
      return;
    }
    if (item.kind === "message") {
      if (seq * PARTS < item.at) this.touch(item);
      item.at = Math.min(item.at, seq * PARTS);
    }
    this.finish((item.kind === "tool" ? item.output : item.characters).mark(seq, end));
  }

  private event(type: string, data: Dict, mark: Mark): void {
    const at = this.place(mark);
    const turn = mark.turn ?? this.turn.value.turn;
    if (type === "queued") {
      const id = text(data["message_id"]);
      this.queue.set(id, { id, at, text: text(data["text"]) });
    } else if (type === "prompt" || type === "turn.started") {
      this.turn.set(at, { running: true, turn });
      if (text(data["model"])) this.model.set(at, text(data["model"]));
    } else if (type === "turn.ended") {
      this.turn.set(at, { running: false, turn });
    } else if (type === "config.changed") {
      if (text(data["mode"])) this.mode.set(at, text(data["mode"]));
      if (text(data["model"])) this.model.set(at, text(data["model"]));
      if (text(data["title"])) this.title.set(at, text(data["title"]));
    } else if (type === "approval.resolved") {
      const tool = this.tool(text(data["call_id"]));
      if (tool.decision.set(at, text(data["outcome"]))) this.touch(tool);
    }
    const notice = noticeOf(type, data);
    if (notice !== null) this.notice(notice, at, mark.ts);
    this.receive(mark);
  }

  private notice(words: Pick<Notice, "level" | "text" | "detail">, at: number, ts?: number): void {
    const id = `notice:${String(at)}`;
    const notice: Notice = { kind: "notice", id, at, arrival: (this.arrivals += 1), revision: 0, ...words };
    if (ts !== undefined) notice.time = ts / 1000;
    this.items.set(id, notice);
    this.dirty.add(id);
  }

  private place(mark: Mark): number {
    if (mark.seq !== undefined) return mark.seq * PARTS + (mark.part ?? 0);
    // From an agent that gives no `seq`: in order of arrival, behind what has one.
    return this.lastSeq * PARTS + PARTS - 1 + (this.unnumbered += 1) / 1e9;
  }

  private touch(item: Item): void {
    item.revision += 1;
    this.dirty.add(item.id);
  }

  private finish(seqs: number[]): void {
    for (const seq of seqs) this.receive({ seq });
  }

  /** Count an event, or one part of it, as received. */
  private receive(mark: Mark): void {
    const { seq } = mark;
    if (seq === undefined || seq <= this.lastSeq) return;
    const total = mark.parts ?? 1;
    if (total > 1) {
      const seen = this.parts.get(seq) ?? new Set<number>();
      this.parts.set(seq, seen.add(mark.part ?? 0));
      if (seen.size < total) return;
      this.parts.delete(seq);
    }
    this.ahead.add(seq);
    while (this.ahead.delete(this.lastSeq + 1)) this.lastSeq += 1;
  }
}
