/** What a piece of Markdown says, without its marks: for places that have room for a line or two of it. */

import MarkdownIt from "markdown-it";
import type { Token } from "markdown-it/index.js";
import { callouts } from "./callouts";
import { math } from "./math";

const md = new MarkdownIt({ html: true }).use(math).use(callouts);
const ENV = { nonce: "", math: true, callouts: true };

/** In one line. HTML says what stands between its tags, a picture what stands for it. */
export function plainText(markdown: string): string {
  return md.parse(markdown, { ...ENV, references: {} }).map(said).join("").replace(/\s+/g, " ").trim();
}

function said(token: Token): string {
  if (token.type === "inline") return (token.children ?? []).map(said).join("");
  if (token.type === "softbreak" || token.type === "hardbreak") return " ";
  if (token.type === "html_inline") return "";
  if (token.type === "html_block") return token.content.replace(/<[^>]*>/g, " ");
  if (token.type === "blockquote_open" && token.meta) return `${(token.meta as { title: string }).title} `;
  // The end of a paragraph or a cell parts what stands before and behind it; the end of emphasis does not.
  return token.block ? `${token.content} ` : token.content;
}
