/** Markdown to elements: markdown-it reads, DOMPurify cleans, and what is left is furnished with what the client adds.
 *
 * Nobody's HTML can pass for ours: what the renderer itself marks has a number in `data-md` that nobody outside can know, and every class, role
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
  const fragment = purify.sanitize(md.renderer.render(block.tokens, md.options, env), CONFIG) as unknown as DocumentFragment;
  furnish(fragment, env);
  return fragment;
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
  for (const image of root.querySelectorAll("img")) {
    if (/^data:image\/(png|jpeg|gif|webp);/i.test(image.getAttribute("src") ?? "")) continue;
    const address = image.getAttribute("src") ?? "";
    image.replaceWith(h("span", { class: "picture-left-out", title: address }, t("picture.left_out", { alt: image.alt || address })));
  }
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
