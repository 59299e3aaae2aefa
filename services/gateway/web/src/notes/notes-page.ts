/** The notes of each workspace, to be looked at. */

import { ask, said } from "../api";
import { largestWorkspace, state } from "../app-state";
import type { NoteSummary } from "../contracts";
import { button, field, h } from "../dom";
import { number, t } from "../i18n";

const PAGE = 200;

export function notesPage(open: (workspace: string, path: string) => void): HTMLElement {
  const list = h("ul", { class: "note-list" });
  const more = h("div", { class: "more" });
  const where = h("select", {}, ...state.workspaces.map((one) => h("option", { value: one.id, selected: one === largestWorkspace() }, `${one.title} (${number(one.notes)})`)));
  const filter = h("input", { type: "search" });
  let all: NoteSummary[] = [];
  const show = (): void => {
    const wanted = filter.value.trim().toLocaleLowerCase();
    const found = all.filter((note) => `${note.path}\n${note.title}`.toLocaleLowerCase().includes(wanted));
    list.replaceChildren(
      ...found.map((note) =>
        h("li", {}, h("button", { type: "button", class: "note-row", onclick: () => open(where.value, note.path) }, h("span", { class: "note-title" }, note.title), h("span", { class: "muted" }, note.path))),
      ),
    );
    if (found.length === 0) list.append(h("li", { class: "muted" }, t("notes.none")));
  };
  const load = async (cursor = ""): Promise<void> => {
    if (!where.value) return show();
    try {
      const parameters = new URLSearchParams({ limit: String(PAGE), ...(cursor ? { cursor } : {}) });
      const page = await ask<{ items: NoteSummary[]; next_cursor: string | null }>(`/api/workspaces/${where.value}/notes?${parameters}`);
      all = cursor ? [...all, ...page.items] : page.items;
      more.replaceChildren(...(page.next_cursor ? [button(t("app.more"), () => load(page.next_cursor!))] : []));
      show();
    } catch (error) {
      list.replaceChildren(h("li", { class: "problem" }, said(error)));
    }
  };
  where.addEventListener("change", () => void load());
  filter.addEventListener("input", show);
  void load();
  return h("section", { class: "page" }, h("h1", {}, t("app.notes")), h("div", { class: "form-row" }, field(t("admin.workspace"), where), field(t("notes.filter"), filter)), list, more);
}
