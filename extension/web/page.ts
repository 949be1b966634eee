/** The chat page: one client, the views around it, and the keys that move between them. */

import { Client, words } from "./client.js";
import { h, setChildren, setHidden, setText } from "./dom.js";
import { messageText } from "./items.js";
import type { Endpoint } from "./connection.js";
import type { Keep } from "./outbox.js";
import { dict, isDict, list, text, type Choice, type ServerInfo } from "./wire.js";
import { Banner } from "./views/banner.js";
import { Composer } from "./views/composer.js";
import { Facts } from "./views/facts.js";
import { Header, helpDialog } from "./views/header.js";
import { Plan, Queue } from "./views/plan.js";
import { QuestionsView } from "./views/question.js";
import { Sidebar, type SessionSort } from "./views/sidebar.js";
import { Transcript } from "./views/transcript.js";
import { Welcome } from "./views/welcome.js";

/** What the page needs from where it is mounted. */
export interface Place {
  endpoint: Endpoint;
  server: ServerInfo;
  keep: Keep;
  /** The session that the address names, and how to name another. */
  address: { read: () => string | null; write: (sessionId: string | null) => void };
  /** The token is refused for good. */
  refused: () => void;
}

export class Page {
  readonly element = h("div", { class: "page" });
  private readonly client: Client;
  private readonly scroller = h("div", { class: "scroller", tabindex: "-1" });
  private readonly main = h("main", { class: "conversation" });
  private readonly trouble = h("p", { class: "trouble", role: "alert", hidden: true });
  private readonly loading = h("p", { class: "loading", hidden: true, text: "Opening the session…" });
  private readonly live = h("p", { class: "sr-only", role: "status", "aria-live": "polite" });
  private readonly help = helpDialog();
  private readonly header: Header;
  private readonly banner: Banner;
  private readonly sidebar: Sidebar;
  private readonly welcome: Welcome;
  private readonly transcript: Transcript;
  private readonly questions = new QuestionsView({
    answer: (requestId, choice, words) => { this.client.answer(requestId, choice, words); },
    skip: (requestId) => { this.client.skip(requestId); },
    left: () => { this.composer.focus(); },
  });
  private readonly plan = new Plan();
  private readonly queue = new Queue();
  private readonly composer: Composer;
  private readonly facts: Facts;
  private readonly veil = h("div", { class: "veil" });
  private scheduled = false;
  private workspace: string;
  /** Chosen before the session exists. */
  private draft: { mode: string | null; model: string | null } = { mode: null, model: null };
  private spoken = { running: false, asked: "" };

  constructor(private readonly place: Place) {
    this.workspace = place.server.workspaces[0] ?? "";
    this.client = new Client(place.endpoint, place.keep, () => {
      this.schedule();
    });
    this.header = new Header(
      () => { this.toggleSidebar(); },
      () => { this.help.showModal(); },
    );
    this.banner = new Banner(() => { this.client.retry(); });
    this.sidebar = new Sidebar({
      open: (sessionId) => { void this.open(sessionId); },
      remove: (sessionId) => { void this.attempt(() => this.client.remove(sessionId)); },
    });
    this.welcome = new Welcome(
      (content) => { this.composer.write(content); },
      (workspace) => { this.workspace = workspace; this.schedule(); },
    );
    this.transcript = new Transcript(this.scroller, {
      shorten: (path) => this.shorten(path),
      answer: (requestId, optionId) => { this.client.approve(requestId, optionId); this.composer.focus(); },
      resend: (id) => { this.client.resend(id); },
      withdraw: (id) => { this.composer.write(this.client.withdraw(id)); },
    });
    this.composer = new Composer({
      send: (content, steer) => { void this.send(content, steer); },
      stop: () => { this.client.cancel(); },
    });
    this.facts = new Facts({
      setMode: (mode) => { void this.setMode(mode); },
      setModel: (model) => { void this.setModel(model); },
    });
    this.build();
  }

  start(): void {
    this.client.current = this.place.address.read();
    this.client.start();
    this.render();
    this.composer.focus();
  }

  private build(): void {
    this.composer.footer.append(this.facts.element);
    const { trouble, questions, plan, queue, composer } = this;
    const dock = h("div", { class: "dock" }, trouble, questions.element, plan.element, queue.element, composer.element);
    this.scroller.append(this.welcome.element, this.loading, this.transcript.element);
    this.main.append(this.header.element, this.banner.element, this.scroller, dock);
    this.veil.addEventListener("click", () => { this.toggleSidebar(false); });
    this.element.append(this.sidebar.element, this.veil, this.main, this.live, this.help);
    if (!matchMedia("(max-width: 820px)").matches) this.element.classList.add("with-sidebar");
    document.addEventListener("keydown", (event) => { this.key(event); });
    window.addEventListener("online", () => { this.client.retry(); });
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState !== "visible") return;
      this.client.retry();
      void this.client.refresh();
    });
    window.addEventListener("hashchange", () => {
      const named = this.place.address.read();
      if (named !== this.client.current) void this.open(named);
    });
  }

  // ---- what a person does

  private async open(sessionId: string | null): Promise<void> {
    this.place.address.write(sessionId);
    if (matchMedia("(max-width: 820px)").matches) this.toggleSidebar(false);
    const shown = this.client.show(sessionId);
    this.transcript.follow();
    this.composer.focus();
    await this.attempt(() => shown);
  }

  private async send(content: string, steer: boolean): Promise<void> {
    this.say("");
    // The person may be elsewhere by the time the session is made; the message is for it all the same.
    const sent = await this.attempt(async () => {
      const sessionId = this.client.current ?? (await this.begin());
      this.client.send(sessionId, content, steer);
      if (this.client.current === sessionId) this.transcript.follow();
    });
    if (!sent) this.composer.write(content);
  }

  private async begin(): Promise<string> {
    const sessionId = await this.client.create(this.workspace, this.draft.mode, this.draft.model);
    if (this.client.current === sessionId) this.place.address.write(sessionId);
    return sessionId;
  }

  private async setMode(mode: string): Promise<void> {
    if (this.client.current !== null) await this.attempt(() => this.client.setMode(mode));
    else this.draft.mode = mode;
    this.schedule();
  }

  private async setModel(model: string): Promise<void> {
    if (this.client.current !== null) await this.attempt(() => this.client.setModel(model));
    else this.draft.model = model;
    this.schedule();
  }

  /** Run what may fail; a failure is shown in words. */
  private async attempt(action: () => Promise<unknown>): Promise<boolean> {
    try {
      await action();
      this.say("");
      return true;
    } catch (error) {
      this.say(words(error));
      return false;
    }
  }

  private say(sentence: string): void {
    setText(this.trouble, sentence);
    setHidden(this.trouble, sentence === "");
  }

  private toggleSidebar(open?: boolean): void {
    this.element.classList.toggle("with-sidebar", open);
    this.schedule();
  }

  private key(event: KeyboardEvent): void {
    const { target } = event;
    const writing = target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    const keys: Record<string, () => void> = {
      KeyN: () => { void this.open(null); },
      KeyS: () => { this.toggleSidebar(); },
      KeyA: () => { if (this.questions.focused || !this.questions.focus()) this.transcript.focusApproval(); },
    };
    const chosen = event.altKey && !event.ctrlKey && !event.metaKey ? keys[event.code] : undefined;
    if (chosen !== undefined) {
      event.preventDefault();
      chosen();
    } else if (plain && !writing && event.key === "/") {
      event.preventDefault();
      this.composer.focus();
    } else if (plain && !writing && event.key === "?") {
      this.help.showModal();
    } else if (plain && event.key === "Escape" && !writing && !this.help.open) {
      if (this.client.state?.running === true) this.client.cancel();
    }
  }

  // ---- what a person sees

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    const draw = (): void => {
      this.scheduled = false;
      this.render();
    };
    // A hidden page gets no animation frames, but its title still says when a person is needed.
    if (document.visibilityState === "visible") requestAnimationFrame(draw);
    else setTimeout(draw, 200);
  }

  private render(): void {
    const { client, place } = this;
    if (client.status.kind === "refused") {
      place.refused();
      return;
    }
    const { state, current } = client;
    const row = client.sessions?.find(({ sessionId }) => sessionId === current);
    const title = state?.title.value ?? row?.title ?? (current === null ? "New session" : "Session");
    const open = this.element.classList.contains("with-sidebar");
    this.header.update(title, current === null ? "" : baseName(row?.cwd ?? this.workspace), open);
    this.banner.update(client.status);
    this.sidebar.update(client.sessions, current, this.sorts());
    setHidden(this.welcome.element, current !== null);
    setHidden(this.loading, !client.loading);
    setHidden(this.transcript.element, state === null || client.loading);
    this.welcome.update(place.server.workspaces, this.workspace);
    if (client.trouble !== "") this.say(client.trouble);
    const shown = client.loading ? null : current;
    // Before the transcript, which follows its end: cards take room from it.
    this.questions.update(shown === null ? [] : client.questions.of(shown));
    if (state !== null && shown !== null) {
      const approvals = client.approvals.of(shown);
      const waiting = client.open(shown).length > 0;
      this.transcript.update({ state, approvals, outgoing: client.outbox.of(shown), waiting });
    }
    this.plan.update(state?.plan.value ?? []);
    this.queue.update(state?.queued ?? []);
    const running = state?.running ?? false;
    this.composer.update(running, running ? "Add something while it works…" : "Ask, or say what to change…");
    this.renderFacts();
    this.announce(title, running);
  }

  private renderFacts(): void {
    const { state } = this.client;
    const { server } = this.place;
    const options = (state?.options.value ?? []).filter(isDict);
    const modelOption = options.find(({ category }) => category === "model");
    const modeOption = options.find(({ category }) => category === "mode");
    const models = modelOption === undefined ? server.models.map(named) : choices(modelOption["options"]);
    const model = first(state?.model.value, modelOption?.["currentValue"], this.draft.model, server.model);
    const mode = first(state?.mode.value, modeOption?.["currentValue"], this.draft.mode, server.mode);
    const usage = state?.usage.value ?? { used: 0, size: 0, cost: null };
    this.facts.update(mode, choices(modeOption?.["options"]), model, models, usage);
  }

  private sorts(): Map<string, SessionSort> {
    const sorts = new Map<string, SessionSort>();
    for (const [sessionId, state] of this.client.states) {
      if (this.client.open(sessionId).length > 0) sorts.set(sessionId, "waiting");
      else if (state.running) sorts.set(sessionId, "running");
    }
    return sorts;
  }

  /** Tell the title and those who listen instead of looking. */
  private announce(title: string, running: boolean): void {
    const { current, state } = this.client;
    const asked = current === null ? undefined : this.client.open(current).at(-1);
    document.title = `${asked !== undefined ? "● " : running ? "… " : ""}${title} · Etude`;
    if (asked !== undefined && asked.requestId !== this.spoken.asked) setText(this.live, `Etude asks: ${asked.title}`);
    else if (running && !this.spoken.running) setText(this.live, "Etude is working.");
    else if (!running && this.spoken.running) {
      const said = state?.ordered().findLast((item) => item.kind === "message" && item.speaker === "agent");
      setText(this.live, said?.kind === "message" ? messageText(said).slice(0, 600) : "The turn has ended.");
    }
    this.spoken = { running, asked: asked?.requestId ?? "" };
  }

  private shorten(path: string): string {
    const { current, sessions } = this.client;
    const root = sessions?.find(({ sessionId }) => sessionId === current)?.cwd ?? this.workspace;
    return path.startsWith(`${root}/`) ? path.slice(root.length + 1) : path;
  }
}

/** The first that is a text with characters in it. */
function first(...values: unknown[]): string {
  return values.map(text).find((value) => value !== "") ?? "";
}

function choices(options: unknown): Choice[] {
  return list(options).map((option) => {
    const { value, name, description } = dict(option);
    const choice: Choice = { value: text(value), name: text(name) };
    return description === undefined ? choice : { ...choice, description: text(description) };
  });
}

function named(value: string): Choice {
  return { value, name: value };
}

function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1) || path;
}

/** Replace what a mount point shows. */
export function show(root: Element, element: Element): void {
  setChildren(root, [element]);
}
