/** `[1]`, `[1, 2]`, `【3】` in an answer's text as marks. What a mark is, the server decides (services/agent/citations.py); this shows the same.
 *
 * The rule runs after markdown-it's own rule for links, so `[1](x)` and a `[1]` with a definition are links; code never gets here.
 */

import type MarkdownIt from "markdown-it";
import type { StateInline } from "markdown-it/index.js";
import type { RenderEnv } from "./renderer";

const NUMBERS = "\\d{1,4}(?:[^\\S\\n]{0,3}[,，、][^\\S\\n]{0,3}\\d{1,4}){0,31}";
const MARK = new RegExp(`\\[${NUMBERS}\\]|\\[cit_blk_[A-Za-z0-9_-]{1,200}\\]|【${NUMBERS}】`, "y");
/** What no rule of markdown-it looks at. */
const PLAIN = /^[^\n!#$%&*+\-:<=>@[\]^_`{}~\\]+$/;
const PIECE = /cit_blk_[A-Za-z0-9_-]+|\d+/g;

export function citations(md: MarkdownIt): void {
  md.inline.ruler.after("link", "citation", mark);
  // `【` begins no rule of markdown-it, so its rule for text would run over it.
  md.inline.ruler.before("text", "lenticular", (state, silent) => {
    if (state.src[state.pos] === "【") return mark(state, silent);
    const at = state.src.indexOf("【", state.pos + 1);
    if (at < 0) return false;
    const text = state.src.slice(state.pos, at);
    if (!PLAIN.test(text)) return false;
    if (!silent) state.pending += text;
    state.pos = at;
    return true;
  });
  md.renderer.rules["citation"] = (tokens, index, _options, env: RenderEnv) =>
    `<span data-md="${env.nonce}" data-cite="${tokens[index]!.content}">${tokens[index]!.content}</span>`;
}

function mark(state: StateInline, silent: boolean): boolean {
  const env = state.env as RenderEnv;
  const first = state.src.charCodeAt(state.pos);
  if ((first !== 0x5b && first !== 0x3010) || !env.numbers || (state as { linkLevel?: number }).linkLevel! > 0) return false;
  MARK.lastIndex = state.pos;
  const found = MARK.exec(state.src)?.[0];
  if (!found) return false;
  const end = state.pos + found.length;
  // [[1]] is a wiki link; [[1] and [2]] cites both.
  if (first === 0x5b && state.src[state.pos - 1] === "[" && state.src[end] === "]") return false;
  const pieces = found.match(PIECE) ?? [];
  const known = pieces.map((piece) => (piece.startsWith("c") ? env.legacy?.get(piece) : env.numbers?.has(Number(piece)) ? Number(piece) : undefined));
  if (known.every((number) => number === undefined)) return false;
  if (!silent) {
    pieces.forEach((piece, index) => {
      const number = known[index];
      if (number === undefined) state.push("text", "", 0).content = `[${piece}]`;
      else state.push("citation", "", 0).content = String(number);
    });
  }
  state.pos = end;
  return true;
}
