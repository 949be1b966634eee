/** Building and updating elements, without markup in strings. */

type Child = Node | string | null | undefined | false;

/** A listener of any kind of event (a method's parameter is compared both ways). */
type Listener = { on(event: Event): void }["on"];

/** `class`, `text`, `on…` listeners, else attributes; absent values set nothing. */
export type Properties = Record<string, string | number | boolean | null | undefined | Listener>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else if (name === "class") element.className = String(value);
    else if (name === "text") element.textContent = String(value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child): child is Node | string => child instanceof Node || typeof child === "string"));
  return element;
}

/** Set text only where it differs: the caret, a selection and the layout stay as they are. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function setHidden(element: HTMLElement, hidden: boolean): void {
  if (element.hidden !== hidden) element.hidden = hidden;
}

export function setAttribute(element: Element, name: string, value: string): void {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Make `parent` hold exactly these nodes (behind the child `after`, if given), moving as few as possible. */
export function setChildren(parent: Element, nodes: readonly Node[], after: ChildNode | null = null): void {
  let next = after === null ? parent.firstChild : after.nextSibling;
  for (const node of nodes) {
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
  while (next !== null) {
    const following = next.nextSibling;
    next.remove();
    next = following;
  }
}

/** Make a field as tall as its text, up to a third of the window. */
export function grow(field: HTMLTextAreaElement): void {
  field.style.height = "auto";
  const height = Math.min(field.scrollHeight, Math.round(window.innerHeight / 3));
  field.style.height = `${String(height)}px`;
}

/** A random id that is safe outside of secure contexts too. */
export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
