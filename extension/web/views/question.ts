/** The agent's open questions, above the composer: answers to choose from, a field for own words, a way past. */

import { grow, h, setChildren, setHidden } from "../dom.js";
import { mayTakeFocus } from "../focus.js";
import { icon } from "../icons.js";
import type { Question } from "../questions.js";

export interface QuestionActions {
  answer: (requestId: string, choice: string, words: string) => void;
  skip: (requestId: string) => void;
  /** The card that had the keyboard is gone, and no other is open. */
  left: () => void;
}

/** Cards whose begun answers are remembered. */
const REMEMBERED = 20;

class QuestionView {
  readonly element = h("section", { class: "question", role: "group" });
  private readonly input = h("textarea", { rows: 1, spellcheck: "true", enterkeyhint: "send" });
  private readonly sendButton = h("button", { class: "primary", type: "submit", text: "Answer" });
  private readonly skipButton = h("button", { class: "question-skip", type: "button" });
  private readonly choices: HTMLButtonElement[];

  constructor(
    private question: Question,
    private readonly actions: QuestionActions,
  ) {
    const { requestId, title, field } = question;
    const titleId = `question-${requestId}`;
    this.element.setAttribute("aria-labelledby", titleId);
    const words = h("p", { class: "question-text", id: titleId, text: title });
    this.choices = question.choices.map((choice) => this.choice(choice));
    const choices = h("div", { class: "question-choices", role: "group", "aria-label": "Answers" }, ...this.choices);
    setHidden(choices, this.choices.length === 0);
    this.skipButton.append("Skip", h("kbd", { text: "Esc", "aria-hidden": "true" }));
    this.skipButton.setAttribute("aria-keyshortcuts", "Escape");
    this.skipButton.addEventListener("click", () => {
      this.skip();
    });
    this.input.setAttribute("aria-label", field ?? "");
    this.input.setAttribute("aria-describedby", titleId);
    this.input.placeholder = this.choices.length > 0 ? "Or say it in your own words…" : "Your answer…";
    setHidden(this.input, field === null);
    setHidden(this.sendButton, field === null);
    const form = h("form", { class: "question-form" }, this.input, this.sendButton, this.skipButton);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.input.addEventListener("input", () => {
      grow(this.input);
      this.draw();
    });
    this.element.append(h("div", { class: "question-head" }, icon("help"), words), choices, form);
    this.element.addEventListener("keydown", (event) => {
      this.key(event);
    });
  }

  get words(): string {
    return this.input.value;
  }

  /** Go on with what was written before. */
  resume(words: string): void {
    this.input.value = words;
    grow(this.input);
    this.draw();
  }

  /** The same question, asked on another connection perhaps. */
  update(question: Question): void {
    this.question = question;
    this.draw();
  }

  focus(): void {
    const place = this.question.field === null ? (this.choices[0] ?? this.skipButton) : this.input;
    this.element.scrollIntoView({ block: "nearest" });
    place.focus({ preventScroll: true });
  }

  private choice(choice: string): HTMLButtonElement {
    const button = h("button", { class: "question-choice", type: "button", text: choice });
    button.addEventListener("click", () => {
      if (this.question.reply !== null) this.actions.answer(this.question.requestId, choice, this.words.trim());
    });
    return button;
  }

  private send(): void {
    const words = this.words.trim();
    if (words !== "" && this.question.reply !== null) this.actions.answer(this.question.requestId, "", words);
  }

  private skip(): void {
    if (this.question.reply !== null) this.actions.skip(this.question.requestId);
  }

  /** While the connection is away there is nobody to answer; what is written stays. */
  private draw(): void {
    const away = this.question.reply === null;
    for (const button of [...this.choices, this.skipButton]) button.disabled = away;
    this.sendButton.disabled = away || this.words.trim() === "";
  }

  private key(event: KeyboardEvent): void {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    const writing = event.target === this.input;
    if (event.key === "Escape") {
      // The page's own Escape would stop the turn.
      event.stopPropagation();
      event.preventDefault();
      this.skip();
    } else if (writing && event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.send();
    } else if (!writing || this.words === "") this.move(event);
  }

  /** Arrows go through the answers and the field, as Tab does. */
  private move(event: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const places = this.question.field === null ? this.choices : [...this.choices, this.input];
    const at = places.findIndex((place) => place === document.activeElement);
    if (step === undefined || at < 0 || places.length < 2) return;
    event.preventDefault();
    places[(at + step + places.length) % places.length]?.focus();
  }
}

export class QuestionsView {
  readonly element = h("div", { class: "questions", hidden: true });
  private readonly views = new Map<string, QuestionView>();
  /** What was written in cards that are gone: they come again with their session, or after a broken connection. */
  private readonly begun = new Map<string, string>();

  constructor(private readonly actions: QuestionActions) {}

  get focused(): boolean {
    return this.element.contains(document.activeElement);
  }

  update(questions: Question[]): void {
    const { focused } = this;
    const open = new Set(questions.map(({ requestId }) => requestId));
    for (const [requestId, view] of this.views) if (!open.has(requestId)) this.close(requestId, view);
    const added = questions.filter(({ requestId }) => !this.views.has(requestId));
    for (const question of added) this.views.set(question.requestId, new QuestionView(question, this.actions));
    for (const question of questions) this.views.get(question.requestId)?.update(question);
    setHidden(this.element, questions.length === 0);
    setChildren(this.element, [...this.views.values()].map(({ element }) => element));
    for (const { requestId } of added) this.views.get(requestId)?.resume(this.begun.get(requestId) ?? "");
    if (focused && !this.focused) {
      if (!this.focus()) this.actions.left();
    } else if (added.length > 0 && mayTakeFocus()) this.focus();
  }

  /** Put the keyboard on the oldest question. False when there is none. */
  focus(): boolean {
    const [first] = this.views.values();
    first?.focus();
    return first !== undefined;
  }

  private close(requestId: string, view: QuestionView): void {
    this.views.delete(requestId);
    if (view.words === "") return;
    this.begun.set(requestId, view.words);
    const [oldest] = this.begun.keys();
    if (this.begun.size > REMEMBERED && oldest !== undefined) this.begun.delete(oldest);
  }
}
