import assert from "node:assert/strict";
import { test } from "node:test";
import { messageText, toolText } from "./items.js";
import { Random } from "./random.js";
import { SessionState } from "./state.js";
import type { Dict, Notification } from "./wire.js";

const SESSION = "01TEST";

/** One stored event of a made-up session, as the server would send it. */
interface Stored {
  seq: number;
  frames: Notification[];
  /** For streamed characters: what the live frames said of them. */
  stream?: { update: (content: string) => Dict; messageId: string; offset: number; text: string };
}

function updateFrame(update: Dict, etude: Dict): Notification {
  return { method: "session/update", params: { sessionId: SESSION, update, _meta: { etude } } };
}

function eventFrame(seq: number, type: string, data: Dict): Notification {
  return { method: "_etude/event", params: { sessionId: SESSION, seq, term: 1, ts: seq, type, data } };
}

const chunk = (kind: string) => (content: string): Dict => ({ sessionUpdate: kind, content: { type: "text", text: content } });

const output = (call: string) => (content: string): Dict => ({
  sessionUpdate: "tool_call_update",
  toolCallId: call,
  content: [{ type: "content", content: { type: "text", text: content } }],
});

const summary = (id: string): Dict => ({
  sessionUpdate: "compaction_update",
  compactionId: id,
  status: "completed",
  summary: [{ type: "text", text: "what matters" }],
  _meta: { etude: { title: "Earlier messages were summarised: about 9,000 tokens became 1,200" } },
});

class Script {
  readonly events: Stored[] = [];
  private get next(): number {
    return this.events.length + 1;
  }

  event(type: string, data: Dict = {}): void {
    this.events.push({ seq: this.next, frames: [eventFrame(this.next, type, data)] });
  }

  updates(...updates: Dict[]): void {
    const seq = this.next;
    const parts = updates.length;
    const etude = parts === 1 ? { seq, term: 1, ts: seq } : { seq, term: 1, ts: seq, parts };
    const frames = updates.map((update, part) => updateFrame(update, parts === 1 ? etude : { ...etude, part: part + 1 }));
    this.events.push({ seq, frames });
  }

  stream(random: Random, messageId: string, update: (content: string) => Dict): void {
    let offset = 0;
    for (let piece = random.below(5); piece >= 0; piece -= 1) {
      const points = Array.from({ length: 1 + random.below(9) }, () => random.pick(["a", "b ", "𝄞", "é", "\n"]));
      const content = points.join("");
      const seq = this.next;
      const etude = { seq, term: 1, ts: seq, messageId, offset };
      const stream = { update, messageId, offset, text: content };
      this.events.push({ seq, frames: [updateFrame(update(content), etude)], stream });
      offset += Array.from(content).length;
    }
  }
}

/** A session of some turns: thoughts, text, calls with output, plans, queued and steered messages. */
function session(random: Random): Stored[] {
  const script = new Script();
  script.event("session.created", { mode: "ask" });
  for (let turn = 1; turn <= 1 + random.below(4); turn += 1) {
    const id = `user-${String(turn)}`;
    if (random.next() < 0.3) script.event("queued", { message_id: id, text: "later" });
    script.updates(
      { ...chunk("user_message_chunk")("hello"), messageId: id },
      { ...chunk("user_message_chunk")("and this"), messageId: id },
    );
    script.event("turn.started", { model: "scripted" });
    for (let step = random.below(4); step >= 0; step -= 1) {
      const key = `${String(turn)}-${String(step)}`;
      if (random.next() < 0.5) script.stream(random, `thought-${key}`, chunk("agent_thought_chunk"));
      script.stream(random, `text-${key}`, chunk("agent_message_chunk"));
      script.updates({ sessionUpdate: "usage_update", used: 100 * turn, size: 8000, cost: { amount: turn, currency: "USD" } });
      const call = `call-${key}`;
      script.updates({ sessionUpdate: "tool_call", toolCallId: call, title: "run", kind: "execute", status: "pending" });
      script.event("approval.requested", { request_id: `r-${key}`, call_id: call });
      script.event("approval.resolved", { request_id: `r-${key}`, call_id: call, outcome: "allowed" });
      script.updates({ sessionUpdate: "tool_call_update", toolCallId: call, status: "in_progress" });
      script.stream(random, call, output(call));
      script.updates(
        { sessionUpdate: "tool_call_update", toolCallId: call, status: "completed", content: [{ type: "diff", path: "a.py", oldText: "x", newText: "y" }] },
        { sessionUpdate: "plan", entries: [{ content: `step ${key}`, status: "pending", priority: "low" }] },
      );
      if (random.next() < 0.2) {
        script.updates({ ...chunk("user_message_chunk")("wait"), messageId: `steer-${key}` });
      }
    }
    if (random.next() < 0.3) script.updates(summary(`summary-${String(turn)}`));
    script.event("turn.ended", { reason: random.pick(["end_turn", "cancelled", "max_steps"]), steps: 2 });
  }
  return script.events;
}

/** Everything a view shows, without what only tells when it was first seen. */
function snapshot(state: SessionState): unknown {
  const items = state.ordered().map((item) => {
    if (item.kind === "message") {
      return [item.id, item.at, messageText(item), item.characters.stored, item.turn, item.time];
    }
    if (item.kind === "notice") return [item.id, item.level, item.text, item.detail];
    const { title, status, diffs, decision, started, ended, facts } = item;
    return [item.id, item.at, toolText(item), title.value, status.value, diffs.value, decision.value, started, ended.value, facts.value];
  });
  const { lastSeq, title, mode, model, plan, usage, turn, queued } = state;
  return { items, lastSeq, queued, facts: [title, mode, model, plan, usage, turn].map((cell) => cell.value) };
}

function folded(events: Stored[]): SessionState {
  const state = new SessionState(SESSION);
  for (const { frames } of events) for (const frame of frames) state.apply(frame);
  return state;
}

/** The frames of one connection that attached after `from`: live pieces, then marks or stored pieces. */
function connection(events: Stored[], from: number, attachedAt: number, random: Random): Notification[] {
  const frames: Notification[] = [];
  for (const event of events.filter(({ seq }) => seq > from)) {
    const { stream, seq } = event;
    if (stream === undefined || seq <= attachedAt) {
      frames.push(...event.frames);
      continue;
    }
    const points = Array.from(stream.text);
    let lost = false;
    for (const [index, point] of points.entries()) {
      if (random.next() < 0.1) lost = true;
      else frames.push(updateFrame(stream.update(point), { live: true, term: 1, messageId: stream.messageId, offset: stream.offset + index }));
    }
    if (lost) frames.push(...event.frames);
    else {
      const end = stream.offset + points.length;
      frames.push({ method: "_etude/stored", params: { sessionId: SESSION, seq, messageId: stream.messageId, end } });
    }
  }
  return frames;
}

test("a stored log folds to what a person should see", () => {
  const events = session(new Random(1));
  const state = folded(events);
  assert.equal(state.lastSeq, events.length);
  assert.equal(state.running, false);
  assert.equal(state.gap, false);
  const first = state.ordered()[0];
  assert.ok(first?.kind === "message");
  assert.equal(messageText(first), "hello\nand this");
});

test("live frames, lost frames, marks: the same state as the stored log", () => {
  for (let seed = 0; seed < 200; seed += 1) {
    const random = new Random(seed);
    const events = session(random);
    const state = new SessionState(SESSION);
    for (const frame of connection(events, 0, 0, random)) state.apply(frame);
    assert.deepEqual(snapshot(state), snapshot(folded(events)), `seed ${String(seed)}`);
  }
});

test("any order of frames, each up to three times: the same state", () => {
  for (let seed = 0; seed < 200; seed += 1) {
    const random = new Random(seed);
    const events = session(random);
    const frames = connection(events, 0, 0, random);
    const repeated = frames.filter(() => random.next() < 0.4);
    const state = new SessionState(SESSION);
    for (const frame of random.shuffle([...frames, ...repeated, ...repeated])) state.apply(frame);
    assert.deepEqual(snapshot(state), snapshot(folded(events)), `seed ${String(seed)}`);
  }
});

test("a connection that breaks at any frame, again and again, ends in the same state", () => {
  for (let seed = 0; seed < 120; seed += 1) {
    const random = new Random(seed);
    const events = session(random);
    const state = new SessionState(SESSION);
    let written = 0;
    while (state.lastSeq < events.length) {
      const from = state.lastSeq;
      const frames = connection(events, from, Math.max(from, written), random);
      const cut = random.next() < 0.3 ? frames.length : random.below(frames.length + 1);
      for (const frame of frames.slice(0, cut)) state.apply(frame);
      assert.ok(state.lastSeq >= from);
      written = Math.min(events.length, written + random.below(6));
    }
    assert.deepEqual(snapshot(state), snapshot(folded(events)), `seed ${String(seed)}`);
  }
});

test("resuming asks for exactly what is missing", () => {
  const state = new SessionState(SESSION);
  state.apply(eventFrame(1, "session.created", {}));
  state.apply(eventFrame(3, "turn.started", {}));
  assert.equal(state.lastSeq, 1);
  assert.equal(state.gap, true);
  state.apply(updateFrame(chunk("user_message_chunk")("one"), { seq: 2, part: 2, parts: 2, term: 1 }));
  assert.equal(state.lastSeq, 1);
  state.apply(updateFrame(chunk("user_message_chunk")("two"), { seq: 2, part: 1, parts: 2, term: 1 }));
  assert.equal(state.lastSeq, 3);
  assert.equal(state.gap, false);
});

test("characters that a dead owner never stored vanish when the next one speaks", () => {
  const say = chunk("agent_message_chunk");
  const state = new SessionState(SESSION);
  state.apply(eventFrame(1, "turn.started", {}));
  state.apply(updateFrame(say("kept "), { live: true, term: 1, messageId: "m", offset: 0 }));
  state.apply({ method: "_etude/stored", params: { sessionId: SESSION, seq: 2, messageId: "m", end: 5 } });
  state.apply(updateFrame(say("lost"), { live: true, term: 1, messageId: "m", offset: 5 }));
  state.apply(updateFrame(say("never stored"), { live: true, term: 1, messageId: "other", offset: 0 }));
  state.dirty.clear();
  state.apply({ method: "_etude/event", params: { sessionId: SESSION, seq: 3, term: 2, ts: 9, type: "turn.ended", data: { reason: "interrupted" } } });
  const texts = state.ordered().map((item) => (item.kind === "message" ? messageText(item) : item.kind));
  assert.deepEqual(texts, ["kept ", "notice"]);
  assert.ok(state.dirty.has("agent:m") && state.dirty.has("agent:other"));
  state.apply(updateFrame(say("late"), { live: true, term: 1, messageId: "m", offset: 5 }));
  assert.deepEqual(state.ordered().length, 2);
  assert.equal(state.running, false);
});

test("an item that is not stored yet stands after all that is", () => {
  const state = new SessionState(SESSION);
  state.apply(updateFrame(chunk("agent_message_chunk")("streaming"), { live: true, term: 1, messageId: "m", offset: 0 }));
  state.apply(updateFrame(chunk("user_message_chunk")("hello"), { seq: 1, term: 1, messageId: "u" }));
  assert.deepEqual(state.ordered().map(({ id }) => id), ["user:u", "agent:m"]);
});

test("a queued message waits until its prompt takes it up", () => {
  const state = new SessionState(SESSION);
  state.apply(eventFrame(1, "queued", { message_id: "q", text: "then this" }));
  assert.deepEqual(state.queued.map(({ text }) => text), ["then this"]);
  assert.equal(state.has("q"), true);
  state.apply(updateFrame(chunk("user_message_chunk")("then this"), { seq: 2, term: 1, messageId: "q" }));
  assert.deepEqual(state.queued, []);
});

test("facts of an attach hold until a later event says otherwise", () => {
  const state = new SessionState(SESSION);
  state.attached(5, 1, { running: true, mode: "ask", title: "Title" });
  state.apply(eventFrame(4, "turn.ended", { reason: "end_turn" }));
  assert.equal(state.running, true);
  state.apply(updateFrame({ sessionUpdate: "current_mode_update", currentModeId: "auto" }, { seq: 6, term: 1 }));
  assert.equal(state.mode.value, "auto");
  state.apply(eventFrame(7, "turn.ended", { reason: "end_turn" }));
  assert.equal(state.running, false);
});

test("a plain ACP agent, without marks, is shown as well", () => {
  const state = new SessionState(SESSION);
  for (const update of [
    { ...chunk("user_message_chunk")("hi"), messageId: "1" },
    { ...chunk("agent_message_chunk")("Hel"), messageId: "2" },
    { ...chunk("agent_message_chunk")("lo"), messageId: "2" },
  ]) {
    state.apply({ method: "session/update", params: { sessionId: SESSION, update } });
  }
  assert.deepEqual(state.ordered().map((item) => (item.kind === "message" ? messageText(item) : "")), ["hi", "Hello"]);
});

test("frames of no sense change nothing", () => {
  const state = new SessionState(SESSION);
  for (const params of [{}, { update: null }, { update: { sessionUpdate: 5 } }, { update: [], _meta: { etude: 7 } }] as Dict[]) {
    state.apply({ method: "session/update", params });
    state.apply({ method: "_etude/event", params });
    state.apply({ method: "_etude/unknown", params });
  }
  assert.deepEqual(state.ordered(), []);
  assert.equal(state.lastSeq, 0);
});

test("a summary is one folded message with its sizes", () => {
  const state = new SessionState(SESSION);
  state.apply(updateFrame(summary("summary-1"), { seq: 1, term: 1, ts: 1000, turn: 1 }));
  const [item] = state.ordered();
  assert.ok(item?.kind === "message");
  assert.equal(item.speaker, "summary");
  assert.equal(messageText(item), "what matters");
  assert.equal(item.title, "Earlier messages were summarised: about 9,000 tokens became 1,200");
  assert.equal(state.lastSeq, 1);
});
