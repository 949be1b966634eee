/** A button that copies a text and says so. */

import { h } from "../dom.js";
import { icon } from "../icons.js";

export function copyButton(label: string, read: () => string): HTMLButtonElement {
  const button = h("button", { class: "quiet copy", type: "button", "aria-label": label, title: label }, icon("copy"));
  button.addEventListener("click", () => {
    void copyText(read()).then((copied) => {
      if (!copied) return;
      button.replaceChildren(icon("check"));
      button.setAttribute("aria-label", "Copied");
      setTimeout(() => {
        button.replaceChildren(icon("copy"));
        button.setAttribute("aria-label", label);
      }, 1600);
    });
  });
  return button;
}

async function copyText(content: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(content);
    return true;
  } catch {
    return copyBySelection(content);
  }
}

/** Without a secure context there is no clipboard interface; a selection can still be copied. */
function copyBySelection(content: string): boolean {
  const area = h("textarea", { class: "offscreen", "aria-hidden": "true" });
  area.value = content;
  document.body.append(area);
  area.select();
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- the only way there
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}
