/** Before the first message: what this is, which folder it works in, what one can ask. */

import { h, setChildren, setHidden } from "../dom.js";
import { icon, mark } from "../icons.js";

const SUGGESTIONS = [
  { title: "Get to know the code", text: "Explain how this project is laid out, and where I should start reading." },
  { title: "Fix a failing test", text: "Run the tests. If one fails, find out why and fix it." },
  { title: "Find your way", text: "Where in this project is the configuration read, and in which order?" },
  { title: "Review my changes", text: "Look at my uncommitted changes and tell me what you would do differently." },
];

export class Welcome {
  readonly element = h("section", { class: "welcome", "aria-label": "New session" });
  private readonly folder = h("p", { class: "welcome-folder" });
  private key = "";

  constructor(suggest: (content: string) => void, private readonly choose: (workspace: string) => void) {
    const cards = SUGGESTIONS.map(({ title, text }) =>
      h(
        "button",
        { type: "button", class: "suggestion", onclick: () => { suggest(text); } },
        h("span", { class: "suggestion-title", text: title }),
        h("span", { class: "suggestion-text", text }),
      ),
    );
    this.element.append(
      h("div", { class: "welcome-mark" }, mark()),
      h("h1", { text: "What shall we work on?" }),
      this.folder,
      h("div", { class: "suggestions" }, ...cards),
    );
  }

  update(workspaces: string[], workspace: string): void {
    const key = JSON.stringify([workspaces, workspace]);
    if (key === this.key) return;
    this.key = key;
    setHidden(this.folder, workspace === "");
    if (workspaces.length < 2) {
      setChildren(this.folder, [icon("folder"), h("span", { class: "path", text: workspace })]);
      return;
    }
    const options = workspaces.map((path) => h("option", { value: path, selected: path === workspace, text: path }));
    const select = h("select", { "aria-label": "Folder" }, ...options);
    select.addEventListener("change", () => {
      this.choose(select.value);
    });
    setChildren(this.folder, [icon("folder"), select]);
  }
}

/** A page of its own for what keeps the chat from being shown. */
export function obstacle(title: string, sentences: string[], action?: { label: string; run: () => void }): HTMLElement {
  return h(
    "main",
    { class: "obstacle" },
    h("div", { class: "welcome-mark" }, mark()),
    h("h1", { text: title }),
    ...sentences.map((sentence) => h("p", { text: sentence })),
    action && h("button", { class: "primary", type: "button", text: action.label, onclick: action.run }),
  );
}
