/** Cards for the sources that an answer cites, and for no others (ON-16, UI-1), each under the number that the text has. */

import type { Message, Source } from "../contracts";
import { h } from "../dom";
import { number, t } from "../i18n";
import { plainText } from "../markdown/plain-text";

export type OpenSource = (source: Source) => void;

export class SourceCards {
  private readonly list = h("ol", { class: "source-list" });
  private readonly rest = h("p", { class: "source-rest", hidden: true });
  readonly element: HTMLElement = h(
    "section",
    { class: "sources", hidden: true, "aria-label": t("source.title") },
    h("h3", { title: t("source.hint") }, t("source.title")),
    this.list,
    h("p", { class: "source-hint" }, t("source.hint")),
    this.rest,
  );
  private shown = "";

  constructor(private readonly open: OpenSource) {}

  /** `cited`: the numbers in the order of first citation. One without a source is text. */
  update(message: Message, cited: number[]): void {
    const sources = cited.flatMap((wanted) => message.sources.find((source) => source.number === wanted) ?? []);
    const left = message.left_out.length;
    this.element.hidden = sources.length === 0;
    this.rest.hidden = left === 0;
    this.rest.textContent = left > 0 ? t("source.left_out", { n: number(left) }) : "";
    const key = JSON.stringify(sources);
    if (key === this.shown) return;
    this.shown = key;
    this.list.replaceChildren(...sources.map((source) => this.card(source)));
  }

  /** Shows which card belongs to a number. */
  point(wanted: number): void {
    for (const card of this.list.querySelectorAll<HTMLElement>(".source-card")) card.toggleAttribute("data-active", card.dataset["number"] === String(wanted));
  }

  private card(source: Source): HTMLElement {
    const state = source.state === "changed" || source.state === "gone" ? source.state : null;
    return h(
      "li",
      {},
      h(
        "button",
        { type: "button", class: "source-card", "data-number": source.number, onclick: () => this.open(source) },
        h("span", { class: "source-number" }, String(source.number)),
        h("span", { class: "source-name", dir: "auto" }, nameOf(source.file_path ?? t("source.unnamed"))),
        h("span", { class: "source-place", dir: "auto" }, placeOf(source)),
        source.excerpt && h("span", { class: "source-excerpt", dir: "auto" }, plainText(source.excerpt)),
        state && h("span", { class: "badge", "data-status": state }, t(`source.${state}`)),
      ),
    );
  }
}

function placeOf(source: Source): string {
  return [source.file_path ?? t("source.unnamed"), ...source.heading_path].join(" › ");
}

/** The answer as it is copied: its numbers mean something elsewhere only with the list of what they stand for. */
export function withSources(message: Message): string {
  const cited = message.cited.flatMap((wanted) => message.sources.find((source) => source.number === wanted) ?? []);
  if (cited.length === 0) return message.content;
  return `${message.content.trimEnd()}\n\n${cited.map((source) => `[${source.number}] ${placeOf(source)}\n`).join("")}`;
}

function nameOf(path: string): string {
  return path.split("/").at(-1)!.replace(/\.(md|markdown)$/i, "");
}
