/** Mode, model, context and cost of a session: what a person sets and watches. */

import { h, setAttribute, setHidden, setText } from "../dom.js";
import { formatCost, formatCount } from "../events.js";
import type { UsageFacts } from "../state.js";
import type { Choice } from "../wire.js";

export interface FactsActions {
  setMode: (mode: string) => void;
  setModel: (model: string) => void;
}

const MODES: Choice[] = [
  { value: "plan", name: "Plan", description: "Reads and thinks; changes nothing" },
  { value: "ask", name: "Ask", description: "Asks before each change and each command" },
  { value: "auto", name: "Auto", description: "Edits and runs sandboxed commands without asking" },
  { value: "full", name: "Full", description: "Never asks" },
];

export class Facts {
  readonly element = h("div", { class: "facts" });
  private readonly modes = h("div", { class: "modes", role: "radiogroup", "aria-label": "Mode" });
  private readonly model = h("select", { class: "model", "aria-label": "Model" });
  private readonly meter = h("div", { class: "meter", role: "meter", "aria-label": "Context used", "aria-valuemin": 0 });
  private readonly fill = h("span", { class: "meter-fill" });
  private readonly used = h("span", { class: "meter-text" });
  private readonly cost = h("span", { class: "cost" });
  private drawnModes = "";
  private drawnModels = "";

  constructor(private readonly actions: FactsActions) {
    this.meter.append(h("span", { class: "meter-track" }, this.fill), this.used);
    this.element.append(this.modes, this.model, this.meter, this.cost);
    this.model.addEventListener("change", () => {
      this.actions.setModel(this.model.value);
    });
    this.modes.addEventListener("keydown", (event) => {
      this.arrow(event);
    });
  }

  update(mode: string, modes: Choice[], model: string, models: Choice[], usage: UsageFacts): void {
    this.drawModes(mode, modes.length > 0 ? modes : MODES);
    this.drawModel(model, models);
    this.drawUsage(usage);
  }

  private drawModes(mode: string, modes: Choice[]): void {
    const key = JSON.stringify([mode, modes]);
    if (key === this.drawnModes) return;
    this.drawnModes = key;
    const focused = this.modes.contains(document.activeElement);
    const buttons = modes.map(({ value, name, description }) => {
      const checked = value === mode;
      const properties = { class: "mode", type: "button", role: "radio", "data-mode": value, title: description ?? name };
      const button = h("button", { ...properties, "aria-checked": String(checked), tabindex: checked ? 0 : -1, text: name });
      button.addEventListener("click", () => {
        this.actions.setMode(value);
      });
      return button;
    });
    this.modes.replaceChildren(...buttons);
    if (focused) this.modes.querySelector<HTMLElement>("[aria-checked=true]")?.focus();
  }

  private drawModel(model: string, models: Choice[]): void {
    const known = models.some(({ value }) => value === model) || model === "" ? models : [{ value: model, name: model }, ...models];
    const key = JSON.stringify([model, known]);
    setHidden(this.model, known.length === 0);
    if (key === this.drawnModels) return;
    this.drawnModels = key;
    this.model.replaceChildren(
      ...known.map(({ value, name }) => h("option", { value, selected: value === model, text: name })),
    );
    this.model.value = model;
    this.model.disabled = known.length < 2;
  }

  private drawUsage({ used, size, cost }: UsageFacts): void {
    setHidden(this.meter, used === 0);
    const share = size > 0 ? Math.min(1, used / size) : 0;
    this.fill.style.width = `${String(Math.round(share * 100))}%`;
    this.meter.classList.toggle("unknown", size === 0);
    this.meter.classList.toggle("full", share > 0.8);
    setText(this.used, size > 0 ? `${formatCount(used)} / ${formatCount(size)}` : `${formatCount(used)} tokens`);
    setAttribute(this.meter, "aria-valuemax", String(size || used));
    setAttribute(this.meter, "aria-valuenow", String(used));
    setAttribute(this.meter, "title", size > 0 ? `Context: ${String(Math.round(share * 100))} % used` : "Context used");
    setHidden(this.cost, cost === null);
    setText(this.cost, cost === null ? "" : formatCost(cost));
  }

  private arrow(event: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const buttons = [...this.modes.querySelectorAll("button")];
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const next = buttons[(at + step + buttons.length) % buttons.length];
    next?.focus();
    next?.click();
  }
}
