/** Formulas drawn by KaTeX; loaded with the first of them. It makes elements, not HTML, so that its lengths need no inline style in markup. */

import katex from "katex";
import "katex/dist/katex.min.css";

export function draw(place: HTMLElement): void {
  const tex = place.textContent ?? "";
  const options = { displayMode: place.dataset["display"] === "true", throwOnError: false, trust: false, maxExpand: 500, maxSize: 50, strict: "ignore" as const };
  place.replaceChildren();
  katex.render(tex, place, options);
}
