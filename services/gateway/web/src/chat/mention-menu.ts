/** The menu behind an `@`: chosen from with arrow keys or by click, announced as a list box (MN-11). */

import { ask } from "../api";
import type { Candidate } from "../contracts";
import { h } from "../dom";
import { locale, t } from "../i18n";

const LIMIT = 30;

export class MentionMenu {
  private readonly list = h("ul", { id: "mention-list", role: "listbox", "aria-label": t("mention.menu") });
  readonly element = h("div", { class: "mention-menu", hidden: true }, this.list);
  private items: Candidate[] = [];
  private active = 0;
  private asked = 0;
  /** What is shown does not answer what is typed yet. */
  private looking = false;
  private chooseFirst = false;

  constructor(private readonly choose: (candidate: Candidate) => void, private readonly field: HTMLElement) {}

  get open(): boolean {
    return !this.element.hidden;
  }

  async show(workspace: string | null, query: string): Promise<void> {
    const asked = (this.asked += 1);
    this.chooseFirst = false;
    if (!workspace) return this.say(t("mention.no_workspace"));
    const parameters = new URLSearchParams({ workspace, query, limit: String(LIMIT), locale: locale() });
    this.looking = true;
    const { items } = await ask<{ items: Candidate[] }>(`/api/mentions/candidates?${parameters}`).catch(() => ({ items: [] }));
    if (asked !== this.asked) return; // typed on meanwhile
    this.looking = false;
    this.items = items;
    this.active = 0;
    if (this.chooseFirst && items[0]) return this.choose(items[0]);
    if (items.length === 0) return this.say(t("mention.none"));
    this.list.replaceChildren(...items.map((item, index) => this.option(item, index)));
    this.element.hidden = false;
    this.field.setAttribute("aria-expanded", "true");
    this.point();
  }

  close(): void {
    this.asked += 1;
    this.looking = false;
    this.items = [];
    this.element.hidden = true;
    this.field.setAttribute("aria-expanded", "false");
    this.field.removeAttribute("aria-activedescendant");
  }

  /** Whether the key was for the menu. */
  key(event: KeyboardEvent): boolean {
    if (this.looking && (event.key === "Enter" || event.key === "Tab") && !event.shiftKey) {
      this.chooseFirst = true; // of what was typed, once it is known
      event.preventDefault();
      return true;
    }
    if (!this.open) return false;
    if (event.key === "Escape") this.close();
    else if (this.items.length === 0) return false;
    else if (event.key === "ArrowDown") this.active = (this.active + 1) % this.items.length;
    else if (event.key === "ArrowUp") this.active = (this.active + this.items.length - 1) % this.items.length;
    else if (event.key === "Enter" || event.key === "Tab") this.choose(this.items[this.active]!);
    else return false;
    event.preventDefault();
    if (this.open) this.point();
    return true;
  }

  private say(text: string): void {
    this.looking = false;
    this.items = [];
    this.list.replaceChildren(h("li", { class: "mention-none", role: "option", "aria-disabled": "true" }, text));
    this.element.hidden = false;
    this.field.setAttribute("aria-expanded", "true");
  }

  private option(item: Candidate, index: number): HTMLElement {
    return h(
      "li",
      { id: `mention-${index}`, role: "option", "data-kind": item.kind, onmousedown: (event: MouseEvent) => event.preventDefault(), onclick: () => this.choose(item) },
      h("span", { class: "mention-icon", "aria-hidden": "true" }, item.icon),
      h("span", { class: "mention-name" }, item.name),
      h("span", { class: "mention-description" }, item.description),
    );
  }

  private point(): void {
    [...this.list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === this.active)));
    const active = this.list.children[this.active];
    if (!active?.id) return;
    this.field.setAttribute("aria-activedescendant", active.id);
    active.scrollIntoView({ block: "nearest" });
  }
}
