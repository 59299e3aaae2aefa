/** The conversations at the side: the latest first, further ones when asked for, and all of them to be searched. */

import { ask } from "./api";
import type { ConversationSummary } from "./contracts";
import { button, h } from "./dom";
import { t } from "./i18n";

const PAGE = 50;
const PAGE_MAX = 200;
/** With fewer there is nothing to look for. */
const SEARCHED_FROM = 8;

interface Page { items: ConversationSummary[]; next_cursor: string | null }
interface Row { element: HTMLLIElement; link: HTMLAnchorElement }

export class ConversationList {
  private readonly list = h("ul", { class: "conversation-list" });
  private readonly more = h("div", { class: "more" }, button(t("app.more"), () => this.grow(PAGE)));
  private readonly none = h("p", { class: "muted none", hidden: true });
  private readonly filter = h("input", { type: "search", class: "conversation-filter", "aria-label": t("app.find"), placeholder: t("app.find"), hidden: true });
  private readonly rows = new Map<string, Row>();
  private items: ConversationSummary[] = [];
  private wanted = PAGE;
  private whole = false;
  private loading: Promise<void> = Promise.resolve();
  readonly element = h("div", { class: "side-list" }, this.filter, h("div", { class: "side-scroll" }, this.list, this.none, this.more));

  constructor(private readonly shown: () => void) {
    this.more.hidden = true;
    this.filter.addEventListener("input", () => void this.find());
  }

  /** Reads as many as are shown, one reading at a time. */
  load(): Promise<void> {
    this.loading = this.loading.then(() => this.read());
    return this.loading;
  }

  private async read(): Promise<void> {
    const found: ConversationSummary[] = [];
    let cursor: string | null = null;
    do {
      const parameters: URLSearchParams = new URLSearchParams({ limit: String(Math.min(this.wanted - found.length, PAGE_MAX)), ...(cursor ? { cursor } : {}) });
      const page: Page | null = await ask<Page>(`/api/chat/conversations?${parameters}`).catch(() => null);
      if (!page) return; // what is shown stays
      found.push(...page.items);
      cursor = page.next_cursor;
    } while (cursor && found.length < this.wanted);
    this.items = found;
    this.whole = cursor === null;
    this.show();
  }

  private grow(by: number): Promise<void> {
    this.wanted = Math.max(PAGE, this.items.length) + by;
    return this.load();
  }

  private async find(): Promise<void> {
    this.show();
    if (!this.whole && this.filter.value.trim() !== "") await this.grow(Infinity);
  }

  /** A row that is there stays: somebody may be about to press it. */
  private show(): void {
    const wanted = this.filter.value.trim().toLocaleLowerCase();
    const found = this.items.filter((one) => one.title.toLocaleLowerCase().includes(wanted));
    const kept = new Set(found.map((one) => one.id));
    for (const [id, row] of this.rows) {
      if (kept.has(id)) continue;
      row.element.remove();
      this.rows.delete(id);
    }
    let next = this.list.firstElementChild;
    for (const one of found) {
      const row = this.row(one);
      if (row.element === next) next = next.nextElementSibling;
      else this.list.insertBefore(row.element, next);
    }
    this.filter.hidden = wanted === "" && this.whole && this.items.length < SEARCHED_FROM;
    this.more.hidden = this.whole;
    this.none.hidden = found.length > 0;
    this.none.textContent = t(wanted ? "app.found_none" : "app.none");
    this.shown();
  }

  private row({ id, title }: ConversationSummary): Row {
    let row = this.rows.get(id);
    if (!row) {
      const link = h("a", { href: `#/c/${id}`, class: "conversation-link", dir: "auto" });
      row = { element: h("li", {}, link), link };
      this.rows.set(id, row);
    }
    if (row.link.textContent !== title) {
      row.link.textContent = title;
      row.link.title = title;
    }
    return row;
  }
}
