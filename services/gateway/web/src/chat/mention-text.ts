/** What a message's text says about notes: the `@` that is being typed, and titles to be marked. */

export const QUERY_CHARACTERS_MAX = 200;

/** The `@…` that ends at the caret. Within quotes it may have spaces; in the middle of a word, as in an address, it is none. */
export function mentionAt(text: string, caret: number): { start: number; query: string } | null {
  const before = text.slice(Math.max(0, caret - QUERY_CHARACTERS_MAX), caret);
  const match = /(?:^|[^\w@.+-])@((?:"[^"\n]*"?)?[^\s@"]*)$/u.exec(before);
  if (!match) return null;
  const query = match[1]!;
  return { start: caret - query.length - 1, query };
}

/** The text in pieces, those marked that are `@` and one of the titles, the longest that fits. */
export function markTitles(text: string, titles: string[]): { text: string; title: boolean }[] {
  const pieces: { text: string; title: boolean }[] = [];
  const add = (piece: string, title: boolean): void => {
    const last = pieces.at(-1);
    if (piece === "") return;
    if (last && last.title === title && !title) last.text += piece;
    else pieces.push({ text: piece, title });
  };
  let from = 0;
  for (let at = text.indexOf("@"); at >= 0; at = text.indexOf("@", at + 1)) {
    if (at < from) continue;
    const rest = text.slice(at + 1);
    const title = titles.filter((one) => one !== "" && rest.startsWith(one)).sort((one, other) => other.length - one.length)[0];
    if (title === undefined) continue;
    add(text.slice(from, at), false);
    add(`@${title}`, true);
    from = at + 1 + title.length;
  }
  add(text.slice(from), false);
  return pieces;
}
