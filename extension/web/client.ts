/** What a person does, as ACP: sessions, prompts, steering, answers; over a connection that may break. */

import { Approvals } from "./approvals.js";
import { Connection, type Endpoint, type Status } from "./connection.js";
import { randomId } from "./dom.js";
import { Outbox, type Keep } from "./outbox.js";
import { Questions } from "./questions.js";
import type { OpenRequest } from "./requests.js";
import { Disconnected, RpcError } from "./rpc.js";
import { SessionState } from "./state.js";
import { dict, isDict, list, number, text, textBlock, type Dict, type SessionRow } from "./wire.js";

/** How long a known gap may last before the missing events are asked for again. */
const GAP_MS = 1500;

export class Client {
  readonly approvals = new Approvals();
  readonly questions = new Questions();
  readonly outbox: Outbox;
  readonly states = new Map<string, SessionState>();
  /** Sessions this client was told of, newest first; null until the first answer. */
  sessions: SessionRow[] | null = null;
  current: string | null = null;
  /** Why the current session cannot be shown; empty when it can. */
  trouble = "";
  /** True from opening a session until its past is in. */
  loading = false;
  private readonly requests = [this.approvals, this.questions];
  private readonly attached = new Set<string>();
  /** Sessions whose past is on its way, and the `seq` it ends with. */
  private readonly catchingUp = new Map<string, number>();
  private readonly connection: Connection;
  /** How often another session was chosen: what takes a while must not lead a person back. */
  private visits = 0;
  private gapTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    endpoint: Endpoint,
    keep: Keep,
    private readonly changed: () => void,
  ) {
    this.outbox = new Outbox(keep);
    this.connection = new Connection(endpoint, {
      status: (status) => {
        if (status.kind !== "online") this.disconnected();
        this.changed();
      },
      ready: () => {
        void this.resume();
      },
      notification: (method, params) => {
        this.notified(method, params);
        this.changed();
      },
      request: (id, method, params) => {
        this.asked(id, method, params);
        this.changed();
      },
    });
  }

  get status(): Status {
    return this.connection.status;
  }

  get state(): SessionState | null {
    return this.current === null ? null : (this.states.get(this.current) ?? null);
  }

  start(): void {
    this.connection.open();
  }

  retry(): void {
    this.connection.retry();
  }

  stop(): void {
    this.connection.close();
  }

  // ---- sessions

  /** Show a session; null shows the page for a new one. */
  async show(sessionId: string | null): Promise<void> {
    this.visits += 1;
    this.current = sessionId;
    this.trouble = "";
    this.loading = sessionId !== null && this.catchingUp.has(sessionId);
    this.changed();
    if (sessionId !== null && !this.attached.has(sessionId)) await this.attach(sessionId);
  }

  /** A new session in a folder, with a mode and model other than the server's own where they are given. */
  async create(cwd: string, mode: string | null, model: string | null): Promise<string> {
    const visit = this.visits;
    const peer = await this.connection.online();
    const answer = await peer.request("session/new", { cwd, mcpServers: [] });
    const sessionId = text(answer["sessionId"]);
    const state = this.remember(sessionId);
    state.options.set(0, list(answer["configOptions"]));
    state.mode.set(0, text(dict(answer["modes"])["currentModeId"]));
    await (visit === this.visits ? this.show(sessionId) : this.attach(sessionId));
    if (mode !== null && mode !== state.mode.value) await this.setMode(mode, sessionId);
    if (model !== null) await this.setModel(model, sessionId);
    void this.refresh();
    return sessionId;
  }

  async remove(sessionId: string): Promise<void> {
    await (await this.connection.online()).request("session/delete", { sessionId });
    this.states.delete(sessionId);
    this.attached.delete(sessionId);
    this.sessions = (this.sessions ?? []).filter((row) => row.sessionId !== sessionId);
    if (this.current === sessionId) await this.show(null);
    this.changed();
  }

  async refresh(): Promise<void> {
    const peer = this.connection.peer;
    if (peer === null) return;
    const answer = await quiet(peer.request("session/list", {}));
    if (answer === null) return;
    this.sessions = list(answer["sessions"]).filter(isDict).map(toRow);
    for (const row of this.sessions) row.title = this.states.get(row.sessionId)?.title.value ?? row.title ?? null;
    this.changed();
  }

  // ---- turns

  /** Send a message to a session: into its running turn (`steer`), else as the next prompt. */
  send(sessionId: string, content: string, steer: boolean): void {
    const message = { id: randomId(), sessionId, text: content, steer, error: "" };
    this.outbox.add(message);
    this.changed();
    if (this.attached.has(message.sessionId)) void this.deliver(message.id);
  }

  /** Send a refused message once more. */
  resend(id: string): void {
    this.outbox.failed(id, "");
    void this.deliver(id);
    this.changed();
  }

  /** Take a refused message back, to be written anew. */
  withdraw(id: string): string {
    const message = this.outbox.remove(id);
    this.changed();
    return message?.text ?? "";
  }

  cancel(): void {
    if (this.current !== null) this.connection.peer?.notify("session/cancel", { sessionId: this.current });
  }

  async setMode(modeId: string, sessionId = this.current): Promise<void> {
    if (sessionId !== null) await (await this.connection.online()).request("session/set_mode", { sessionId, modeId });
  }

  async setModel(value: string, sessionId = this.current): Promise<void> {
    if (sessionId === null) return;
    const params = { sessionId, configId: "model", value };
    const answer = await (await this.connection.online()).request("session/set_config_option", params);
    const options = this.states.get(sessionId)?.options;
    options?.set(options.at, list(answer["configOptions"]));
    this.changed();
  }

  // ---- answers

  /** What waits for a person in a session. */
  open(sessionId: string): OpenRequest[] {
    return [...this.approvals.of(sessionId), ...this.questions.of(sessionId)];
  }

  approve(requestId: string, optionId: string): void {
    this.approvals.answer(requestId, optionId);
    this.changed();
  }

  answer(requestId: string, choice: string, words: string): void {
    this.questions.answer(requestId, choice, words);
    this.changed();
  }

  skip(requestId: string): void {
    this.questions.skip(requestId);
    this.changed();
  }

  // ---- the wire

  private remember(sessionId: string): SessionState {
    const known = this.states.get(sessionId);
    if (known !== undefined) return known;
    const state = new SessionState(sessionId);
    this.states.set(sessionId, state);
    return state;
  }

  private disconnected(): void {
    this.attached.clear();
    this.catchingUp.clear();
    for (const requests of this.requests) requests.disconnect();
    clearTimeout(this.gapTimer);
    this.gapTimer = undefined;
  }

  private async resume(): Promise<void> {
    void this.refresh();
    if (this.current !== null) await this.attach(this.current);
  }

  private async attach(sessionId: string): Promise<void> {
    const peer = this.connection.peer;
    if (peer === null) return;
    const state = this.remember(sessionId);
    this.loading = this.current === sessionId && state.lastSeq === 0;
    this.catchingUp.set(sessionId, Infinity);
    this.attached.add(sessionId);
    try {
      const answer = await peer.request("_etude/attach", { sessionId, afterSeq: state.lastSeq });
      for (const requests of this.requests) requests.renew(sessionId);
      const lastSeq = number(answer["lastSeq"]) ?? 0;
      if (answer["reset"] === true || lastSeq < state.lastSeq) {
        await this.startOver(sessionId);
        return;
      }
      state.attached(lastSeq, number(answer["term"]) ?? 0, dict(answer["state"]));
      if (this.current === sessionId) this.trouble = "";
      this.catchingUp.set(sessionId, lastSeq);
      this.follow(state);
      for (const message of this.outbox.of(sessionId)) if (message.error === "") void this.deliver(message.id);
    } catch (error) {
      if (error instanceof Disconnected) return;
      this.attached.delete(sessionId);
      this.catchingUp.delete(sessionId);
      if (this.current === sessionId) {
        this.trouble = words(error);
        this.loading = false;
      }
    }
    this.changed();
  }

  /** What this client has is not what the log holds: forget it and read everything again. */
  private async startOver(sessionId: string): Promise<void> {
    this.states.delete(sessionId);
    await this.attach(sessionId);
  }

  private async deliver(id: string): Promise<void> {
    const message = this.outbox.get(id);
    const peer = this.connection.peer;
    if (message === undefined || peer === null) return;
    const { sessionId } = message;
    const prompt = [textBlock(message.text)];
    try {
      if (message.steer) {
        const expectedTurn = this.states.get(sessionId)?.turn.value.turn;
        await peer.request("_etude/steer", { sessionId, prompt, clientMessageId: id, expectedTurn });
      } else {
        await peer.request("session/prompt", { sessionId, prompt, _meta: { etude: { clientMessageId: id } } });
      }
    } catch (error) {
      // A broken connection says nothing of the message: it is sent again when the session is attached.
      if (error instanceof Disconnected) return;
      this.outbox.failed(id, words(error));
    }
    this.changed();
  }

  private notified(method: string, params: Dict): void {
    if (method === "_etude/heartbeat") this.beat(dict(params["sessions"]));
    for (const requests of this.requests) {
      if (method === "_etude/permission_resolved") requests.resolved(text(params["requestId"]));
      else if (method === "$/cancel_request") requests.withdrawn(params["requestId"]);
    }
    const state = this.states.get(text(params["sessionId"]));
    if (state === undefined) return;
    state.apply({ method, params });
    for (const { id } of this.outbox.of(state.sessionId)) if (state.has(id)) this.outbox.remove(id);
    this.follow(state);
    if (state.gap) this.watchGap(state);
    this.followList(state, method, params);
  }

  /** A session is shown once its past is in: drawing it while it streams in would take many times longer. */
  private follow(state: SessionState): void {
    const target = this.catchingUp.get(state.sessionId);
    if (target !== undefined && state.lastSeq >= target) this.catchingUp.delete(state.sessionId);
    if (state.sessionId === this.current && !this.catchingUp.has(state.sessionId)) this.loading = false;
  }

  /** Titles and order of the list follow what happens in the sessions. */
  private followList(state: SessionState, method: string, params: Dict): void {
    const row = this.sessions?.find(({ sessionId }) => sessionId === state.sessionId);
    if (row !== undefined && state.title.value !== null) row.title = state.title.value;
    if (method === "_etude/event" && params["type"] === "turn.ended" && !this.loading) void this.refresh();
  }

  /** The server says how far each session is: what does not arrive by itself is asked for. */
  private beat(sessions: Dict): void {
    this.connection.peer?.notify("_etude/heartbeat", {});
    for (const [sessionId, seq] of Object.entries(sessions)) {
      const state = this.states.get(sessionId);
      if (state !== undefined && (number(seq) ?? 0) > state.lastSeq) this.watchGap(state);
    }
  }

  private watchGap(state: SessionState): void {
    if (this.gapTimer !== undefined) return;
    const before = state.lastSeq;
    this.gapTimer = setTimeout(() => {
      this.gapTimer = undefined;
      if (state.lastSeq === before && this.attached.has(state.sessionId)) void this.attach(state.sessionId);
    }, GAP_MS);
  }

  private asked(id: number | string, method: string, params: Dict): void {
    const { peer } = this.connection;
    if (peer === null) return;
    if (method === "session/request_permission") this.approvals.ask(peer, id, params);
    else if (method !== "elicitation/create") peer.refuse(id, -32601, "Method not found");
    else if (!this.questions.ask(peer, id, params)) peer.refuse(id, -32602, "This page cannot show such a form.");
  }
}

/** An error as a sentence for a person. */
export function words(error: unknown): string {
  if (error instanceof RpcError || error instanceof Disconnected) return error.message;
  return error instanceof Error ? error.message : "Something went wrong.";
}

async function quiet(request: Promise<Dict>): Promise<Dict | null> {
  try {
    return await request;
  } catch (error) {
    if (error instanceof Disconnected || error instanceof RpcError) return null;
    throw error;
  }
}

function toRow(row: Dict): SessionRow {
  return {
    sessionId: text(row["sessionId"]),
    cwd: text(row["cwd"]),
    title: text(row["title"]) || null,
    updatedAt: text(row["updatedAt"]) || null,
  };
}
