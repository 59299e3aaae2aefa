/** A code block: one frame with the language's name, copying, and the text line by line.
 *
 * What the `code` element says is always exactly the source: line ends are in it, so copying needs no second copy of the text.
 */

import { h, icon } from "../dom";
import { t } from "../i18n";

/** Above it, colouring would hold up the page. */
const COLOURED_CHARACTERS_MAX = 20_000;
const NUMBERED_LINES_MAX = 1000;

export function codeBlock(language: string, source: string, diagrams: boolean): HTMLElement {
  const isDiagram = diagrams && language.toLowerCase() === "mermaid";
  const label = language || t("code.plain");
  return h(
    "figure",
    { class: "code-block", "data-language": language.toLowerCase(), "data-diagram": isDiagram || null, "aria-label": t("code.block", { language: label }) },
    h(
      "figcaption",
      { class: "code-bar" },
      h("span", { class: "code-language" }, label),
      isDiagram && h("button", { type: "button", class: "code-action", "data-action": "switch", "aria-pressed": "false" }, t("diagram.picture")),
      h("button", { type: "button", class: "code-action", "data-action": "copy", "aria-label": t("code.copy"), title: t("code.copy") }, icon("copy"), h("span", { class: "code-copied", "aria-live": "polite" })),
    ),
    h("pre", { tabindex: 0 }, h("code", {}, source)),
  );
}

/** Colours, lines and pictures for the code blocks in `root`, which are whole now. */
export async function finishCode(root: HTMLElement, draw: (block: HTMLElement) => void = () => undefined): Promise<void> {
  const unfinished = ".code-block:not([data-finished])";
  const blocks = [...(root.matches(unfinished) ? [root] : []), ...root.querySelectorAll<HTMLElement>(unfinished)];
  for (const block of blocks) {
    block.dataset["finished"] = "";
    if (block.dataset["diagram"] !== undefined) draw(block);
  }
  await Promise.all(blocks.map(colour));
}

async function colour(block: HTMLElement): Promise<void> {
  const code = block.querySelector("code")!;
  const source = code.textContent ?? "";
  const language = block.dataset["language"] ?? "";
  if (language && source.length <= COLOURED_CHARACTERS_MAX) {
    const { highlighted } = await import("./highlight");
    const coloured = highlighted(source, language);
    if (coloured) code.replaceChildren(coloured);
  }
  if (source.split("\n", NUMBERED_LINES_MAX + 1).length <= NUMBERED_LINES_MAX) code.replaceChildren(linesOf(code));
}

/** The children of `code` as one element per line, each ending with its line feed; what spans lines is continued on each. */
export function linesOf(code: Element): DocumentFragment {
  const lines = document.createDocumentFragment();
  let line = h("span", { class: "line" });
  const open: Element[] = [];
  const end = (): Element => open.at(-1) ?? line;
  const endLine = (): void => {
    lines.append(line);
    line = h("span", { class: "line" });
    open.forEach((element, depth) => {
      const again = element.cloneNode(false) as Element;
      (depth === 0 ? line : open[depth - 1]!).append(again);
      open[depth] = again;
    });
  };
  const walk = (node: Node): void => {
    if (node instanceof Text) {
      const parts = node.data.split("\n");
      parts.forEach((part, index) => {
        const last = index === parts.length - 1;
        end().append(last ? part : `${part}\n`);
        if (!last) endLine();
      });
      return;
    }
    const copy = node.cloneNode(false) as Element;
    end().append(copy);
    open.push(copy);
    node.childNodes.forEach(walk);
    open.pop();
  };
  code.childNodes.forEach(walk);
  if (line.textContent !== "") lines.append(line);
  return lines;
}

/** What the buttons of code blocks do, for a whole part of the page. */
export async function codeAction(button: HTMLElement): Promise<void> {
  const block = button.closest<HTMLElement>(".code-block")!;
  if (button.dataset["action"] === "switch") {
    const shown = block.toggleAttribute("data-picture");
    button.setAttribute("aria-pressed", String(shown));
    button.textContent = t(shown ? "diagram.source" : "diagram.picture");
    return;
  }
  const said = button.querySelector(".code-copied")!;
  const done = await copyText(block.querySelector("code")!.textContent ?? "");
  said.textContent = t(done ? "copied" : "copy.failed");
  setTimeout(() => (said.textContent = ""), 2000);
}

/** Puts a text on the clipboard; false where the browser does not allow it. On plain http away from this machine it has the old way alone. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedByCommand(text);
  }
}

function copiedByCommand(text: string): boolean {
  let given = false;
  const give = (event: ClipboardEvent): void => {
    event.clipboardData?.setData("text/plain", text);
    event.preventDefault();
    given = true;
  };
  document.addEventListener("copy", give);
  const done = document.execCommand("copy");
  document.removeEventListener("copy", give);
  return done && given;
}
