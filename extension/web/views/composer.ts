/** Where a person writes: send, queue behind the running turn, send into it, stop it. */

import { grow, h, setHidden, setText } from "../dom.js";
import { icon } from "../icons.js";

export interface ComposerActions {
  send: (content: string, steer: boolean) => void;
  stop: () => void;
}

const MODIFIER = navigator.userAgent.includes("Mac") ? "⌘" : "Ctrl";

export class Composer {
  readonly element = h("form", { class: "composer", "aria-label": "Message" });
  /** Mode, model and meters stand here. */
  readonly footer = h("div", { class: "composer-facts" });
  private readonly input = h("textarea", { rows: 1, "aria-label": "Message to Etude", spellcheck: "true", enterkeyhint: "send" });
  private readonly hint = h("p", { class: "composer-hint", id: "composer-hint" });
  private readonly sendButton = h("button", { class: "round primary", type: "submit" }, icon("send"));
  private readonly steerButton = h("button", { class: "steer", type: "button", text: "Send now" });
  private readonly stopButton = h("button", { class: "round stop", type: "button" }, icon("stop"));
  private running = false;

  constructor(private readonly actions: ComposerActions) {
    this.input.setAttribute("aria-describedby", "composer-hint");
    label(this.stopButton, "Stop (Esc)");
    this.steerButton.title = `Give it to the running turn at its next step (${MODIFIER}+Enter)`;
    const buttons = h("div", { class: "composer-buttons" }, this.steerButton, this.stopButton, this.sendButton);
    this.element.append(this.input, h("div", { class: "composer-row" }, this.footer, buttons), this.hint);
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit(false);
    });
    this.element.addEventListener("click", ({ target }) => {
      if (target === this.element) this.focus();
    });
    this.steerButton.addEventListener("click", () => {
      this.submit(true);
    });
    this.stopButton.addEventListener("click", () => {
      this.actions.stop();
    });
    this.input.addEventListener("input", () => {
      grow(this.input);
      this.draw();
    });
    this.input.addEventListener("keydown", (event) => {
      this.key(event);
    });
  }

  update(running: boolean, placeholder: string): void {
    this.running = running;
    if (this.input.placeholder !== placeholder) this.input.placeholder = placeholder;
    this.draw();
  }

  focus(): void {
    this.input.focus();
  }

  /** Put a text into the field, for the person to change or send. */
  write(content: string): void {
    this.input.value = content;
    grow(this.input);
    this.draw();
    this.focus();
    this.input.setSelectionRange(content.length, content.length);
  }

  private submit(steer: boolean): void {
    const content = this.input.value.trim();
    if (content === "") return;
    this.input.value = "";
    grow(this.input);
    this.draw();
    this.actions.send(content, steer && this.running);
  }

  private key(event: KeyboardEvent): void {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      this.submit(event.ctrlKey || event.metaKey);
    } else if (event.key === "Escape" && this.running) {
      event.preventDefault();
      this.actions.stop();
    }
  }

  private draw(): void {
    const empty = this.input.value.trim() === "";
    setHidden(this.stopButton, !this.running);
    setHidden(this.steerButton, !this.running || empty);
    setHidden(this.sendButton, this.running && empty);
    this.sendButton.disabled = empty;
    label(this.sendButton, this.running ? "Queue behind the running turn (Enter)" : "Send (Enter)");
    setText(
      this.hint,
      this.running
        ? `Enter queues · ${MODIFIER}+Enter sends into the running turn · Esc stops`
        : "Enter sends · Shift+Enter starts a new line",
    );
  }
}

function label(button: HTMLButtonElement, words: string): void {
  if (button.title === words) return;
  button.title = words;
  button.setAttribute("aria-label", words);
}
