/** `> [!note] Title` as a box, and `- [x]` as a box to be ticked: two habits of notes that CommonMark does not know. */

import type MarkdownIt from "markdown-it";
import type { RenderEnv } from "./renderer";

const CALLOUT = /^\[!([A-Za-z-]{1,30})\][+-]?[^\S\n]*([^\n]*)(?:\n|$)/;
const TASK = /^\[([ xX])\][^\S\n]+/;

export function callouts(md: MarkdownIt): void {
  md.core.ruler.before("inline", "callout", (state) => {
    if (!(state.env as RenderEnv).callouts) return;
    state.tokens.forEach((token, index) => {
      const inline = state.tokens[index + 2];
      if (token.type !== "blockquote_open" || state.tokens[index + 1]?.type !== "paragraph_open" || inline?.type !== "inline") return;
      const match = CALLOUT.exec(inline.content);
      if (!match) return;
      const kind = match[1]!.toLowerCase();
      token.meta = { kind, title: match[2]!.trim() || kind };
      inline.content = inline.content.slice(match[0].length);
    });
  });
  md.renderer.rules["blockquote_open"] = (tokens, index, options, env: RenderEnv, self) => {
    const meta = tokens[index]!.meta as { kind: string; title: string } | null;
    if (!meta) return self.renderToken(tokens, index, options);
    const title = md.utils.escapeHtml(meta.title);
    return `<blockquote data-md="${env.nonce}" class="callout" data-kind="${meta.kind}"><p data-md="${env.nonce}" class="callout-title">${title}</p>`;
  };
  md.core.ruler.before("inline", "task", (state) => {
    state.tokens.forEach((token, index) => {
      const item = state.tokens[index - 2];
      if (token.type !== "inline" || item?.type !== "list_item_open") return;
      const match = TASK.exec(token.content);
      if (!match) return;
      item.attrSet("class", "task");
      item.attrSet("data-md", (state.env as RenderEnv).nonce);
      item.attrSet("data-done", String(match[1] !== " "));
      token.content = token.content.slice(match[0].length);
    });
  });
}
