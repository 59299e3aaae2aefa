/** `$…$`, `$$…$$`, `\(…\)` and `\[…\]`: found here, drawn by KaTeX once it is loaded. Until then, and where it cannot, the source stands. */

import type MarkdownIt from "markdown-it";
import type { RenderEnv } from "./renderer";

export function math(md: MarkdownIt): void {
  // Before `escape`, which would take the backslash of `\(`.
  md.inline.ruler.before("escape", "math_inline", (state, silent) => {
    const env = state.env as RenderEnv;
    if (!env.math) return false;
    const found = inlineMath(state.src, state.pos);
    if (!found) return false;
    if (!silent) {
      const token = state.push("math", "", 0);
      token.content = found.tex;
      token.markup = found.display ? "$$" : "$";
    }
    state.pos = found.end;
    return true;
  });
  md.block.ruler.before("fence", "math_block", (state, startLine, endLine, silent) => {
    const env = state.env as RenderEnv;
    if (!env.math || state.sCount[startLine]! - state.blkIndent >= 4) return false;
    const line = (index: number): string => state.src.slice(state.bMarks[index]! + state.tShift[index]!, state.eMarks[index]!);
    const first = line(startLine);
    const close = first.startsWith("$$") ? "$$" : first.startsWith("\\[") ? "\\]" : "";
    if (!close) return false;
    const body: string[] = [];
    for (let index = startLine; index < endLine; index += 1) {
      if (index > startLine && state.sCount[index]! < state.blkIndent) return false;
      const text = (index === startLine ? first.slice(2) : line(index)).trimEnd();
      if (!text.endsWith(close)) {
        if (index === startLine && text.includes(close)) return false; // inline text that begins with a formula
        body.push(text);
        continue;
      }
      if (silent) return true;
      body.push(text.slice(0, -2));
      const token = state.push("math", "", 0);
      token.block = true;
      token.content = body.join("\n").trim();
      token.markup = "$$";
      token.map = [startLine, index + 1];
      state.line = index + 1;
      return true;
    }
    return false;
  }, { alt: ["paragraph", "reference", "blockquote", "list"] });
  md.renderer.rules["math"] = (tokens, index, _options, env: RenderEnv) => {
    const token = tokens[index]!;
    const tex = md.utils.escapeHtml(token.content);
    const tag = token.block ? "div" : "span";
    const lines = token.block && env.lines && token.map ? ` data-line="${token.map[0]}" data-end="${token.map[1]}"` : "";
    return `<${tag} data-md="${env.nonce}" class="math" data-display="${token.markup === "$$"}"${lines}>${tex}</${tag}>`;
  };
}

/** A formula that begins at `start`. A dollar counts as pandoc has it: not before white space, not between digits, so that prices stay prices. */
export function inlineMath(text: string, start: number): { tex: string; display: boolean; end: number } | null {
  if (text.startsWith("\\(", start) || text.startsWith("\\[", start)) {
    const display = text[start + 1] === "[";
    const end = text.indexOf(display ? "\\]" : "\\)", start + 2);
    return end < 0 ? null : { tex: text.slice(start + 2, end).trim(), display, end: end + 2 };
  }
  if (text[start] !== "$") return null;
  const display = text[start + 1] === "$";
  const from = start + (display ? 2 : 1);
  if (!display && /\s|^$/.test(text[from] ?? "")) return null;
  for (let end = text.indexOf("$", from); end >= 0; end = text.indexOf("$", end + 1)) {
    if (text[end - 1] === "\\") continue;
    const tex = text.slice(from, end);
    if (tex === "") return null;
    if (display) return text[end + 1] === "$" ? { tex: tex.trim(), display, end: end + 2 } : null;
    if (/\s$/.test(tex) || /\d/.test(text[end + 1] ?? "")) continue;
    return { tex, display, end: end + 1 };
  }
  return null;
}
