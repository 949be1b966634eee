/** Markdown that may still be growing: only the blocks that changed are rendered again. */

import DOMPurify from "dompurify";
import { Marked, type Token, type TokensList } from "marked";
import { h, setChildren } from "../dom.js";
import { showCode } from "../highlight.js";
import { copyButton } from "./copy.js";

const marked = new Marked({
  gfm: true,
  renderer: {
    // A model that writes `List<T>` means the characters, not an element.
    html({ text }) {
      return escapeHtml(text);
    },
    // Nothing is fetched from elsewhere: a picture becomes a link to it.
    image({ href, text }) {
      return `<a href="${escapeHtml(href)}">${escapeHtml(text || href)}</a>`;
    },
  },
});

function escapeHtml(content: string): string {
  return content.replace(/[&<>"']/g, (character) => `&#${String(character.charCodeAt(0))};`);
}

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  if (/^(https?:|mailto:)/i.test(node.getAttribute("href") ?? "")) {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  } else {
    node.removeAttribute("href");
  }
});

const ALLOWED = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "input", "li", "ol", "p",
    "pre", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["align", "checked", "class", "disabled", "href", "start", "target", "rel", "type"],
  RETURN_DOM_FRAGMENT: true as const,
};

/** Blocks at the end of a growing text that more characters may still change. */
const OPEN_BLOCKS = 3;

interface Block {
  raw: string;
  nodes: ChildNode[];
}

export class Markdown {
  readonly element = h("div", { class: "prose" });
  private source = "";
  /** Characters of the source whose blocks cannot change any more. */
  private settled = 0;
  private lastSettled: ChildNode | null = null;
  private blocks: Block[] = [];

  update(content: string, growing: boolean): void {
    const source = content.replace(/\r\n?/g, "\n");
    if (source === this.source && growing) return;
    const linkLabels = !growing && /^ {0,3}\[[^\]]+\]:/m.test(source);
    if (!source.startsWith(this.source.slice(0, this.settled)) || linkLabels) this.reset();
    this.source = source;
    const tokens = marked.lexer(source.slice(this.settled));
    this.blocks = this.reconcile(tokens);
    this.settle(growing);
  }

  private reset(): void {
    this.blocks = [];
    this.settled = 0;
    this.lastSettled = null;
  }

  private reconcile(tokens: TokensList): Block[] {
    const blocks = tokens.map((token, index) => {
      const known = this.blocks[index];
      return known?.raw === token.raw ? known : { raw: token.raw, nodes: renderToken(token, tokens) };
    });
    setChildren(
      this.element,
      blocks.flatMap(({ nodes }) => nodes),
      this.lastSettled,
    );
    return blocks;
  }

  /** While a text grows only its last blocks can change; what stands before them is done. */
  private settle(growing: boolean): void {
    while (growing && this.blocks.length > OPEN_BLOCKS) {
      const done = this.blocks.shift();
      this.settled += done?.raw.length ?? 0;
      this.lastSettled = done?.nodes.at(-1) ?? this.lastSettled;
    }
  }
}

function renderToken(token: Token, all: TokensList): ChildNode[] {
  if (token.type === "space") return [];
  if (token.type === "code") {
    const { text, lang } = token as { text: string; lang?: string };
    return [codeBlock(text, lang ?? "")];
  }
  const list = Object.assign([token], { links: all.links });
  const fragment = DOMPurify.sanitize(marked.parser(list), ALLOWED);
  for (const pre of fragment.querySelectorAll("pre")) {
    const language = /language-(\S+)/.exec(pre.firstElementChild?.className ?? "")?.[1] ?? "";
    pre.replaceWith(codeBlock(pre.textContent.replace(/\n$/, ""), language));
  }
  for (const table of fragment.querySelectorAll("table")) {
    const frame = h("div", { class: "table-frame", tabindex: "0" });
    table.replaceWith(frame);
    frame.append(table);
  }
  return [...fragment.childNodes];
}

export function codeBlock(code: string, info: string): HTMLElement {
  const language = info.trim().split(/\s+/)[0]?.toLowerCase() ?? "";
  const body = h("code");
  showCode(body, code, language);
  return h(
    "figure",
    { class: "code" },
    h("figcaption", {}, h("span", { class: "language", text: language || "text" }), copyButton("Copy code", () => code)),
    h("pre", { tabindex: "0", "aria-label": language ? `Code, ${language}` : "Code" }, body),
  );
}
