/**
 * The conversation. Items are drawn where they changed; what is far away is drawn when there is time, so
 * that a long session opens at once.
 */

import type { Approval } from "../approvals.js";
import { h, setChildren, setHidden } from "../dom.js";
import { mayTakeFocus } from "../focus.js";
import { icon } from "../icons.js";
import type { Item, Message, Tool } from "../items.js";
import type { Outgoing } from "../outbox.js";
import type { SessionState } from "../state.js";
import { AgentView, FoldedView, noticeView, UserView } from "./message.js";
import { OutgoingView, type OutgoingActions } from "./outgoing.js";
import { ToolView, type ToolContext } from "./tool.js";

/** Items at the end that are drawn at once. */
const NEAR = 40;
/** Items that are laid out and painted together. */
const CHAPTER = 32;
/** Milliseconds of drawing between two chances for the page to do something else. */
const SLICE_MS = 8;
/** Distance from the end, in CSS pixels, within which the view follows what comes. */
const STICKY = 64;

interface Drawn {
  element: HTMLElement;
  at: number;
  draw: (last: boolean) => void;
  /** Whether the element shows the item's present state. */
  fresh: boolean;
}

export interface TranscriptInput {
  state: SessionState;
  approvals: Approval[];
  outgoing: Outgoing[];
  /** Whether the turn waits for a person. */
  waiting: boolean;
}

export class Transcript {
  readonly element = h("div", { class: "transcript" });
  private readonly list = h("div", { class: "items", role: "log", "aria-live": "off", "aria-label": "Conversation" });
  private readonly waiting = h("div", { class: "items outgoing-list" });
  private readonly working = h("p", { class: "working", hidden: true }, h("span", { class: "beat" }), "Working");
  private readonly latest = h("button", { class: "latest", type: "button", hidden: true }, icon("down"), "Latest");
  private state: SessionState | null = null;
  private input: TranscriptInput | null = null;
  private drawn = new Map<string, Drawn>();
  private order: Item[] = [];
  private readonly outgoing = new Map<string, OutgoingView>();
  private readonly approvals = new Map<string, Approval>();
  private chapters: HTMLElement[] = [];
  private turns = new Map<string, number | null>();
  private idle = false;
  private ran = false;
  private following = true;

  constructor(
    private readonly scroller: HTMLElement,
    private readonly context: ToolContext & OutgoingActions,
  ) {
    this.element.append(this.list, this.waiting, this.working, this.latest);
    this.latest.addEventListener("click", () => {
      this.follow();
    });
    scroller.addEventListener("scroll", () => {
      this.following = scroller.scrollTop + scroller.clientHeight >= scroller.scrollHeight - STICKY;
      setHidden(this.latest, this.following);
    });
    const resized = new ResizeObserver(() => {
      if (this.following) this.toEnd();
    });
    for (const element of [this.element, scroller]) resized.observe(element);
  }

  /** Go to the end, and stay there as it grows. */
  follow(): void {
    this.following = true;
    this.toEnd();
    setHidden(this.latest, true);
  }

  update(input: TranscriptInput): void {
    const { state } = input;
    this.input = input;
    if (state !== this.state) this.begin(state);
    const touched = [...state.dirty];
    state.dirty.clear();
    touched.push(...this.takeApprovals(input.approvals));
    if (touched.some((id) => this.drawn.get(id)?.at !== (state.items.get(id)?.at ?? NaN))) this.arrange(state);
    for (const id of touched) this.stale(id);
    this.followTurn(state.running);
    this.drawNear();
    this.drawOutgoing(input.outgoing);
    this.drawWorking(state);
    if (this.following) this.toEnd();
  }

  /** Put the keyboard on the oldest open question. False when there is none. */
  focusApproval(): boolean {
    for (const item of this.order) {
      if (item.kind !== "tool" || !this.approvals.has(item.id)) continue;
      this.view(item.id)?.element.scrollIntoView({ block: "nearest" });
      const question = this.view(item.id)?.element.querySelector<HTMLElement>(".approval button");
      question?.focus();
      return question !== null;
    }
    return false;
  }

  private begin(state: SessionState): void {
    this.state = state;
    this.drawn = new Map();
    this.order = [];
    this.chapters = [];
    this.approvals.clear();
    this.outgoing.clear();
    this.list.replaceChildren();
    this.waiting.replaceChildren();
    for (const id of state.items.keys()) state.dirty.add(id);
    this.following = true;
  }

  /** A call that has no end yet runs only while its turn does. */
  private followTurn(running: boolean): void {
    if (running === this.ran) return;
    this.ran = running;
    for (const item of this.order) {
      if (item.kind === "tool" && item.ended.value === undefined) this.stale(item.id);
    }
  }

  private takeApprovals(approvals: Approval[]): string[] {
    const before = [...this.approvals.keys()];
    this.approvals.clear();
    for (const approval of approvals) this.approvals.set(`tool:${approval.callId}`, approval);
    return [...new Set([...before, ...this.approvals.keys()])];
  }

  private arrange(state: SessionState): void {
    this.order = state.ordered();
    const kept = new Set(this.order.map(({ id }) => id));
    for (const id of this.drawn.keys()) if (!kept.has(id)) this.drawn.delete(id);
    this.numberTurns();
    const nodes = this.order.map((item) => {
      const view = this.view(item.id) ?? this.make(item);
      view.at = item.at;
      return view.element;
    });
    this.layOut(nodes);
  }

  /** Items stand in chapters: what is not in view costs a frame no more than a few boxes. */
  private layOut(nodes: HTMLElement[]): void {
    const count = Math.ceil(nodes.length / CHAPTER);
    while (this.chapters.length < count) this.chapters.push(h("div", { class: "chapter" }));
    this.chapters.length = count;
    setChildren(this.list, this.chapters);
    for (const [index, chapter] of this.chapters.entries()) {
      setChildren(chapter, nodes.slice(index * CHAPTER, (index + 1) * CHAPTER));
    }
  }

  /** Each turn's first message gets its number, as bars of a score do. */
  private numberTurns(): void {
    const turns = new Map<string, number | null>();
    let count = 0;
    let turn: number | undefined;
    for (const item of this.order) {
      if (item.kind !== "message" || item.speaker !== "user") continue;
      const added = item.turn !== undefined && item.turn === turn;
      turn = item.turn;
      if (!added) count += 1;
      turns.set(item.id, added ? null : count);
      if (this.turns.get(item.id) !== turns.get(item.id)) this.stale(item.id);
    }
    this.turns = turns;
  }

  private view(id: string): Drawn | undefined {
    return this.drawn.get(id);
  }

  private stale(id: string): void {
    const view = this.view(id);
    if (view !== undefined) view.fresh = false;
  }

  private make(item: Item): Drawn {
    const { element, draw } = this.build(item);
    const view: Drawn = { element, at: item.at, fresh: false, draw };
    element.dataset["id"] = item.id;
    this.drawn.set(item.id, view);
    return view;
  }

  private build(item: Item): Pick<Drawn, "element" | "draw"> {
    if (item.kind === "notice") return { element: noticeView(item), draw: () => undefined };
    if (item.kind === "tool") return this.buildTool(item);
    return this.buildMessage(item);
  }

  private buildTool(tool: Tool): Pick<Drawn, "element" | "draw"> {
    const view = new ToolView(this.context);
    const draw = (): void => {
      const approval = this.approvals.get(tool.id);
      const asks = approval !== undefined && view.element.querySelector(".approval") === null;
      view.update(tool, approval, this.state?.running ?? false);
      if (asks && mayTakeFocus()) view.focusApproval();
    };
    return { element: view.element, draw };
  }

  private buildMessage(message: Message): Pick<Drawn, "element" | "draw"> {
    const growing = (last: boolean): boolean => last && (this.state?.running ?? false);
    if (message.speaker === "user") {
      const view = new UserView();
      return { element: view.element, draw: () => { view.update(message, this.turns.get(message.id) ?? null); } };
    }
    if (message.speaker === "agent") {
      const view = new AgentView();
      return { element: view.element, draw: (last) => { view.update(message, growing(last)); } };
    }
    const names =
      message.speaker === "thought"
        ? { growing: "Thinking", done: "Thought" }
        : { growing: "Summarising", done: "Summary of what came before" };
    const view = new FoldedView(names);
    return { element: view.element, draw: (last) => { view.update(message, growing(last)); } };
  }

  /** Draw the end of the conversation now and the rest from there upwards, in slices. */
  private drawNear(): void {
    const last = this.order.length - 1;
    for (let index = last; index >= Math.max(0, last - NEAR); index -= 1) this.drawAt(index);
    if (this.idle || this.order.slice(0, -1).every(({ id }) => this.view(id)?.fresh !== false)) return;
    this.idle = true;
    whenIdle(() => {
      this.idle = false;
      this.drawFar();
    });
  }

  private drawFar(): void {
    const end = performance.now() + SLICE_MS;
    for (let index = this.order.length - 1; index >= 0 && performance.now() < end; index -= 1) this.drawAt(index);
    this.drawNear();
  }

  private drawAt(index: number): void {
    const item = this.order[index];
    const view = item === undefined ? undefined : this.view(item.id);
    if (view === undefined || view.fresh) return;
    const last = index >= this.order.length - 1;
    view.draw(last);
    // A message that was drawn as growing is drawn once more when something follows it.
    view.fresh = !(last && (this.state?.running ?? false));
  }

  private drawOutgoing(outgoing: Outgoing[]): void {
    const nodes = outgoing.map((message) => {
      const view = this.outgoing.get(message.id) ?? new OutgoingView(message, this.context);
      this.outgoing.set(message.id, view);
      view.update(message);
      return view.element;
    });
    setChildren(this.waiting, nodes);
  }

  private drawWorking(state: SessionState): void {
    const last = this.order.at(-1);
    const speaks = last?.kind === "message" && last.speaker !== "user";
    setHidden(this.working, !state.running || speaks || this.input?.waiting === true);
  }

  private toEnd(): void {
    const end = this.scroller.scrollHeight - this.scroller.clientHeight;
    if (Math.abs(this.scroller.scrollTop - end) > 1) this.scroller.scrollTop = end;
  }
}

function whenIdle(work: () => void): void {
  if ("requestIdleCallback" in window) window.requestIdleCallback(work, { timeout: 200 });
  else setTimeout(work, 16);
}
