/** Markdown to elements: markdown-it reads, its tokens become elements, and these are furnished with what the client adds.
 *
 * Nothing is read as HTML but a block that holds HTML of its own, which DOMPurify cleans. Nobody's HTML can pass for ours: what the renderer itself marks has a number in `data-md` that nobody outside can know, and every class, role
 * or datum without it is taken away.
 */

import DOMPurify from "dompurify";
import MarkdownIt from "markdown-it";
import type { Token } from "markdown-it/index.js";
import { h } from "../dom";
import { t } from "../i18n";
import { callouts } from "./callouts";
import { citations } from "./citations";
import { codeBlock } from "./code-block";
import { math } from "./math";

export interface RenderEnv {
  nonce: string;
  references?: Record<string, unknown>;
  /** The numbers that can be cited; absent where `[1]` means nothing. */
  numbers?: Set<number>;
  /** Numbers by the ids that older answers cite. */
  legacy?: Map<string, number>;
  math?: boolean;
  callouts?: boolean;
  diagrams?: boolean;
  /** Whether blocks say on which lines they stand. */
  lines?: boolean;
}

const NONCE = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(36)).join("");

export function environment(options: Omit<RenderEnv, "nonce">): RenderEnv {
  return { nonce: NONCE, references: {}, ...options };
}

const md = new MarkdownIt({ html: true, linkify: true, breaks: false }).use(math).use(citations).use(callouts);
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
md.renderer.rules["fence"] = md.renderer.rules["code_block"] = (tokens, index, _options, env: RenderEnv) => {
  const token = tokens[index]!;
  const language = md.utils.escapeHtml(token.info.trim().split(/\s+/)[0] ?? "");
  const lines = env.lines && token.map ? ` data-line="${token.map[0]}" data-end="${token.map[1]}"` : "";
  return `<pre data-md="${env.nonce}" data-language="${language}"${lines}><code>${md.utils.escapeHtml(token.content)}</code></pre>`;
};
md.core.ruler.push("alignment", (state) => {
  for (const token of state.tokens) {
    const align = /^text-align:(left|center|right)$/.exec(token.attrGet("style") ?? "")?.[1];
    if (align) token.attrs = [["align", align]]; // style in markup is forbidden by the page's policy
  }
});
/** Each block reads in the direction of its own first letters. */
const DIRECTED = /^(paragraph|heading|bullet_list|ordered_list|blockquote|th|td)_open$/;
md.core.ruler.push("direction", (state) => {
  for (const token of state.tokens) if (DIRECTED.test(token.type)) token.attrSet("dir", "auto");
});
md.core.ruler.push("lines", (state) => {
  const env = state.env as RenderEnv;
  if (!env.lines) return;
  for (const token of state.tokens) {
    if (!token.map || token.nesting !== 1) continue;
    token.attrSet("data-md", env.nonce);
    token.attrSet("data-line", String(token.map[0]));
    token.attrSet("data-end", String(token.map[1]));
  }
});

/** One block of the document: its tokens, and the line on which it begins. */
export interface Block { tokens: Token[]; line: number }

/** The blocks of a text, in order. Reference definitions make none. */
export function blocksOf(text: string, env: RenderEnv): Block[] {
  const blocks: Block[] = [];
  let depth = 0;
  for (const token of md.parse(text, env)) {
    if (depth === 0) blocks.push({ tokens: [], line: token.map?.[0] ?? 0 });
    blocks.at(-1)!.tokens.push(token);
    depth += token.nesting;
  }
  return blocks;
}

const KEPT = new Set(["data-md", "href", "title", "align", "colspan", "rowspan", "start", "open", "lang", "dir", "alt", "src", "reversed", "value", "datetime", "cite"]);
const purify = DOMPurify(window);
purify.addHook("uponSanitizeAttribute", (node, data) => {
  const ours = node.getAttribute("data-md") === NONCE;
  const inSvg = node.namespaceURI === "http://www.w3.org/2000/svg";
  if (/^(class|id|role|aria-|data-)/.test(data.attrName)) data.keepAttr = ours && data.attrName !== "id";
  else if (!inSvg && !KEPT.has(data.attrName)) data.keepAttr = false;
  else if (inSvg && /href|^style$/.test(data.attrName)) data.keepAttr = false;
});
const CONFIG = {
  USE_PROFILES: { html: true, svg: true },
  FORBID_TAGS: [
    "style", "form", "input", "button", "select", "textarea", "option", "label", "fieldset", "dialog", "iframe", "frame", "object", "embed", "video", "audio",
    "source", "track", "picture", "map", "area", "link", "meta", "base", "template", "slot", "image", "use", "animate", "animatemotion", "animatetransform",
    "set", "feimage", "marquee", "canvas", "progress", "meter",
  ],
  FORBID_ATTR: ["style", "srcset", "background", "ping", "autofocus", "tabindex", "contenteditable", "popover", "popovertarget"],
  ALLOW_UNKNOWN_PROTOCOLS: false,
  RETURN_DOM_FRAGMENT: true as const,
};

/** A block as elements, clean and furnished. */
export function elementsOf(block: Block, env: RenderEnv): DocumentFragment {
  const fragment = block.tokens.some(holdsHtml) ? cleaned(block.tokens, env) : document.createDocumentFragment();
  if (fragment.childNodes.length === 0) build(block.tokens, fragment, env);
  furnish(fragment, env);
  return fragment;
}

function holdsHtml(token: Token): boolean {
  return token.type === "html_block" || token.type === "html_inline" || (token.children?.some(holdsHtml) ?? false);
}

function cleaned(tokens: Token[], env: RenderEnv): DocumentFragment {
  return purify.sanitize(md.renderer.render(tokens, md.options, env), CONFIG) as unknown as DocumentFragment;
}

/** Tokens as elements, without a detour through HTML. What is no element here is what `md.renderer.rules` write for it. */
function build(tokens: Token[], root: Node, env: RenderEnv): void {
  const open: Node[] = [root];
  for (const token of tokens) {
    const parent = open.at(-1)!;
    if (token.type === "inline") build(token.children ?? [], parent, env);
    else if (token.type in LEAVES) parent.appendChild(LEAVES[token.type]!(token, env));
    else if (token.hidden || token.tag === "") continue;
    else if (token.nesting === -1) open.pop();
    else {
      const element = document.createElement(token.tag);
      for (const [name, value] of token.attrs ?? []) element.setAttribute(name, value);
      parent.appendChild(element);
      if (token.nesting === 1) open.push(element);
      if (token.type === "blockquote_open" && token.meta) beginCallout(element, token.meta as { kind: string; title: string });
    }
  }
}

const LEAVES: Record<string, (token: Token, env: RenderEnv) => Node> = {
  text: (token) => document.createTextNode(token.content),
  text_special: (token) => document.createTextNode(token.content),
  html_block: () => document.createTextNode(""),
  html_inline: () => document.createTextNode(""),
  softbreak: () => document.createTextNode("\n"),
  code_inline: (token) => h("code", {}, token.content),
  image: (token) => picture(token.attrGet("src") ?? "", token.content),
  citation: (token, env) => h("span", { "data-md": env.nonce, "data-cite": token.content }, token.content),
  math: (token, env) => h(token.block ? "div" : "span", { "data-md": env.nonce, class: "math", "data-display": String(token.markup === "$$"), ...lines(token, env) }, token.content),
  fence: (token, env) => pre(token, env),
  code_block: (token, env) => pre(token, env),
};

function pre(token: Token, env: RenderEnv): HTMLElement {
  return h("pre", { "data-md": env.nonce, "data-language": token.info.trim().split(/\s+/)[0] ?? "", ...lines(token, env) }, h("code", {}, token.content));
}

function lines(token: Token, env: RenderEnv): Record<string, number> {
  return env.lines && token.map ? { "data-line": token.map[0], "data-end": token.map[1] } : {};
}

function beginCallout(quote: HTMLElement, { kind, title }: { kind: string; title: string }): void {
  quote.className = "callout";
  quote.dataset["kind"] = kind;
  quote.append(h("p", { class: "callout-title" }, title));
}

/** A picture where it is in the text itself; one that would be fetched is named only. */
function picture(address: string, alt: string): HTMLElement {
  if (/^data:image\/(png|jpeg|gif|webp);/i.test(address)) return h("img", { src: address, alt });
  return h("span", { class: "picture-left-out", title: address }, t("picture.left_out", { alt: alt || address }));
}

function furnish(root: DocumentFragment, env: RenderEnv): void {
  for (const pre of root.querySelectorAll<HTMLElement>("pre[data-md]")) {
    const block = codeBlock(pre.dataset["language"] ?? "", pre.textContent ?? "", env.diagrams ?? true);
    for (const name of ["data-line", "data-end"]) if (pre.hasAttribute(name)) block.setAttribute(name, pre.getAttribute(name)!);
    pre.replaceWith(block);
  }
  for (const mark of root.querySelectorAll<HTMLElement>("[data-cite][data-md]")) {
    const number = mark.dataset["cite"]!;
    mark.replaceWith(h("button", { type: "button", class: "cite", "data-cite": number, "aria-label": t("source.open", { number }) }, number));
  }
  for (const item of root.querySelectorAll<HTMLElement>("li.task[data-md]")) {
    const done = item.dataset["done"] === "true";
    const box = h("input", { type: "checkbox", disabled: true, checked: done, "aria-label": t(done ? "task.done" : "task.open") });
    (item.firstElementChild?.tagName === "P" ? item.firstElementChild : item).prepend(box, " ");
  }
  for (const image of root.querySelectorAll("img")) image.replaceWith(picture(image.getAttribute("src") ?? "", image.alt));
  for (const link of root.querySelectorAll("a")) furnishLink(link);
  for (const table of root.querySelectorAll("table")) {
    const frame = h("div", { class: "table-frame", tabindex: 0, role: "group", "aria-label": t("table") });
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const element of root.querySelectorAll("[data-md]")) element.removeAttribute("data-md");
}

function furnishLink(link: HTMLAnchorElement): void {
  const target = link.getAttribute("href");
  if (target === null) return;
  if (/^(https?:|mailto:)/i.test(target)) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  } else if (/^([a-z][a-z0-9+.-]*:|\/\/)/i.test(target)) {
    link.removeAttribute("href"); // another scheme, or another host in disguise
  } else {
    link.dataset["note"] = target;
    link.setAttribute("href", "#");
  }
}
