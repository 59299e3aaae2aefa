/** Places in a note's text, which the service counts in code points and the page in lines. */

/** The lines of the code points from `start` up to `end`: the first, and the one after the last. */
export function linesOfPassage(text: string, start: number, end: number): { first: number; after: number } {
  let line = 0;
  let point = 0;
  let first = 0;
  for (const character of text) {
    if (point === start) first = line;
    if (point >= end) break;
    if (character === "\n") line += 1;
    point += 1;
  }
  return { first, after: line + 1 };
}

/** The front matter's number of lines; 0 where there is none. */
export function frontMatterLines(text: string): number {
  const match = /^\uFEFF?---[^\S\n]*\r?\n(?:[\s\S]*?\r?\n)?(?:---|\.\.\.)[^\S\n]*(?:\r?\n|$)/.exec(text);
  return match ? match[0].split("\n").length - 1 : 0;
}
