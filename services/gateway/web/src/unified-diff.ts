/** A unified diff as lines to show, each with its numbers before and after. */

export type DiffLine =
  | { kind: "hunk"; text: string }
  | { kind: "same" | "added" | "removed"; text: string; before: number | null; after: number | null }
  | { kind: "remark"; text: string };

const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)$/;

export function diffLines(diff: string): DiffLine[] {
  const lines: DiffLine[] = [];
  let before = 0;
  let after = 0;
  let inside = false;
  const raw = diff.split("\n");
  if (raw.at(-1) === "") raw.pop();
  for (const line of raw) {
    const hunk = HUNK.exec(line);
    if (hunk) {
      before = Number(hunk[1]);
      after = Number(hunk[2]);
      inside = true;
      lines.push({ kind: "hunk", text: hunk[3] ?? "" });
    } else if (!inside) {
      continue; // the names of the two files, which the card says already
    } else if (line.startsWith("+")) lines.push({ kind: "added", text: line.slice(1), before: null, after: after++ });
    else if (line.startsWith("-")) lines.push({ kind: "removed", text: line.slice(1), before: before++, after: null });
    else if (line.startsWith("\\")) lines.push({ kind: "remark", text: line.slice(2) });
    else lines.push({ kind: "same", text: line.slice(1), before: before++, after: after++ });
  }
  return lines;
}

/** Where two lines differ: the length of what they begin with and of what they end with alike. */
export function commonEnds(one: string, other: string): { head: number; tail: number } {
  const shorter = Math.min(one.length, other.length);
  let head = 0;
  while (head < shorter && one[head] === other[head]) head += 1;
  // Never in the middle of a surrogate pair.
  if (head > 0 && /[\uD800-\uDBFF]/.test(one[head - 1]!)) head -= 1;
  let tail = 0;
  while (tail < shorter - head && one[one.length - 1 - tail] === other[other.length - 1 - tail]) tail += 1;
  if (tail > 0 && /[\uDC00-\uDFFF]/.test(one[one.length - tail]!)) tail -= 1;
  return { head, tail };
}
