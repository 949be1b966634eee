/** Above the conversation: which session this is, and the few controls of the page itself. */

import { h, setHidden, setText } from "../dom.js";
import { icon, type IconName } from "../icons.js";
import { nextTheme, theme, type Theme } from "../theme.js";

const THEMES: Record<Theme, { icon: IconName; label: string }> = {
  auto: { icon: "auto", label: "Colours: as the system" },
  light: { icon: "sun", label: "Colours: light" },
  dark: { icon: "moon", label: "Colours: dark" },
};

export class Header {
  readonly element = h("header", { class: "topbar" });
  private readonly title = h("h1", { class: "topbar-title" });
  private readonly folder = h("span", { class: "topbar-folder path" });
  private readonly menu = h("button", { class: "quiet menu-button", type: "button", "aria-label": "Sessions" }, icon("menu"));
  private readonly colours = h("button", { class: "quiet", type: "button" });
  private readonly help = h("button", { class: "quiet", type: "button", "aria-label": "Keys (?)", title: "Keys (?)" }, icon("help"));

  constructor(toggleSidebar: () => void, showHelp: () => void) {
    this.menu.addEventListener("click", toggleSidebar);
    this.help.addEventListener("click", showHelp);
    this.colours.addEventListener("click", () => {
      this.drawTheme(nextTheme());
    });
    this.drawTheme(theme());
    const names = h("div", { class: "topbar-names" }, this.title, this.folder);
    this.element.append(this.menu, names, h("div", { class: "topbar-tools" }, this.colours, this.help));
  }

  update(title: string, folder: string, sidebarOpen: boolean): void {
    setText(this.title, title);
    setText(this.folder, folder);
    setHidden(this.folder, folder === "");
    this.menu.setAttribute("aria-expanded", String(sidebarOpen));
  }

  private drawTheme(now: Theme): void {
    const { icon: name, label } = THEMES[now];
    this.colours.replaceChildren(icon(name));
    this.colours.title = label;
    this.colours.setAttribute("aria-label", label);
  }
}

const KEYS: [string, string][] = [
  ["Enter", "Send; while a turn runs: queue behind it"],
  ["Ctrl+Enter", "Send into the running turn"],
  ["Shift+Enter", "New line"],
  ["Esc", "Stop the running turn; in a question: skip it"],
  ["/", "Go to the message field"],
  ["Alt+N", "New session"],
  ["Alt+S", "Show or hide the sessions"],
  ["Alt+A", "Go to the open question"],
  ["Y  A  N", "Allow a call: once, always, no"],
  ["?", "These keys"],
];

export function helpDialog(): HTMLDialogElement {
  const rows = KEYS.flatMap(([keys, words]) => [h("dt", {}, h("kbd", { text: keys })), h("dd", { text: words })]);
  const close = h("button", { class: "primary", type: "submit", text: "Close" });
  const form = h("form", { method: "dialog" }, h("h2", { text: "Keys" }), h("dl", { class: "keys" }, ...rows), close);
  return h("dialog", { class: "help", "aria-label": "Keys" }, form);
}
