/** A table, and what stands there while it is fetched or cannot be. */

import { ask, said } from "../api";
import type { Page } from "../contracts";
import { type Child, h, iconButton } from "../dom";
import { t } from "../i18n";

const PAGE = 50;

export function table(head: string[], rows: Child[][], label: string): HTMLElement {
  if (rows.length === 0) return h("p", { class: "muted" }, t("admin.none"));
  const cells = (row: Child[]): HTMLElement => h("tr", {}, ...row.map((cell) => h("td", {}, cell)));
  return h(
    "div",
    { class: "table-frame", tabindex: 0, role: "group", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, ...head.map((one) => h("th", { scope: "col" }, one)))), h("tbody", {}, ...rows.map(cells))),
  );
}

/** A place that fills itself, and may be filled anew. */
export function filled(load: () => Promise<Child[]>): { element: HTMLElement; again: () => Promise<void> } {
  const element = h("div", { class: "filled" }, h("p", { class: "muted" }, t("app.loading")));
  const again = async (): Promise<void> => {
    try {
      const children = await load();
      const focused = [...element.children].indexOf(document.activeElement!);
      element.replaceChildren(...children.filter((child): child is Node | string => Boolean(child)));
      (element.children[focused] as HTMLElement | undefined)?.focus();
    } catch (error) {
      element.replaceChildren(h("p", { class: "problem", role: "alert" }, said(error)));
    }
  };
  void again();
  return { element, again };
}

/** Fills a place anew from time to time while it is on the page; not while nobody sees it, or somebody is at work in it. */
export function keptFresh(place: { element: HTMLElement; again: () => Promise<void> }, milliseconds: () => number): HTMLElement {
  const { element, again } = place;
  const next = async (): Promise<void> => {
    if (!element.isConnected) return;
    const at = document.activeElement;
    const isAtWork = element.contains(at) && at!.parentElement !== element;
    if (document.visibilityState === "visible" && !isAtWork) await again();
    setTimeout(next, milliseconds());
  };
  setTimeout(next, milliseconds());
  return element;
}

/** What the service gives in pages, newest first, a page at a time. */
export function paged<T>(address: string, show: (items: T[]) => HTMLElement): HTMLElement {
  let page = 1;
  const go = (to: number): Promise<void> => {
    page = to;
    return place.again();
  };
  const place = filled(async () => {
    const { items, total } = await ask<Page<T>>(`${address}?page=${page}&page_size=${PAGE}`);
    const pages = Math.ceil(total / PAGE);
    const pager = h(
      "div",
      { class: "pager", role: "group", "aria-label": t("pager", { n: page, total: pages }) },
      iconButton("left", t("pager.previous"), () => go(page - 1), { disabled: page <= 1 }),
      h("span", { "aria-hidden": "true" }, `${page}/${pages}`),
      iconButton("right", t("pager.next"), () => go(page + 1), { disabled: page >= pages }),
    );
    return [show(items), pages > 1 && pager];
  });
  return place.element;
}

export function code(text: string, length = 12): HTMLElement {
  return h("code", { title: text }, text.length > length ? `${text.slice(0, length)}…` : text);
}
