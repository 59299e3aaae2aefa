/** A table, and what stands there while it is fetched or cannot be. */

import { said } from "../api";
import { type Child, h } from "../dom";
import { t } from "../i18n";

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
      element.replaceChildren(...children.filter((child): child is Node | string => Boolean(child)));
    } catch (error) {
      element.replaceChildren(h("p", { class: "problem", role: "alert" }, said(error)));
    }
  };
  void again();
  return { element, again };
}

export function code(text: string, length = 12): HTMLElement {
  return h("code", { title: text }, text.length > length ? `${text.slice(0, length)}…` : text);
}
