/** Prometheus' text format, as far as counters need it. */

export interface Sample { name: string; labels: Record<string, string>; value: number }

export function samples(text: string): Sample[] {
  const found: Sample[] = [];
  for (const line of text.split("\n")) {
    const match = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)/.exec(line);
    if (!match) continue;
    const labels: Record<string, string> = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name!] = value!.replace(/\\(.)/g, (_, one: string) => (one === "n" ? "\n" : one));
    found.push({ name: match[1]!, labels, value: Number(match[3]) });
  }
  return found;
}
