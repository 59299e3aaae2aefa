/** The notes of each workspace, to be looked at. */

import { ask, said } from "../api";
import { largestWorkspace, state, workspaceLabel } from "../app-state";
import type { NoteSummary } from "../contracts";
import { button, field, h } from "../dom";
import { number, t } from "../i18n";

const PAGE = 200;
/** For a search everything is read, in pages as large as they come. */
const PAGE_MAX = 1000;

export function notesPage(open: (workspace: string, path: string) => void): HTMLElement {
  const list = h("ul", { class: "note-list" });
  const more = h("div", { class: "more" });
  const where = h("select", {}, ...state.workspaces.map((one) => h("option", { value: one.id, selected: one === largestWorkspace() }, `${workspaceLabel(one)} (${number(one.notes)})`)));
  const filter = h("input", { type: "search" });
  let all: NoteSummary[] = [];
  let cursor: string | null = "";
  let shown = PAGE;
  let reading: Promise<void> | null = null;

  const show = (): void => {
    const wanted = filter.value.trim().toLocaleLowerCase();
    const found = all.filter((note) => `${note.path}\n${note.title}`.toLocaleLowerCase().includes(wanted));
    list.replaceChildren(...found.slice(0, shown).map((note) => row(note, () => open(where.value, note.path))));
    if (found.length === 0) list.append(h("li", { class: "muted" }, t(cursor === null ? "notes.none" : "app.loading")));
    more.hidden = found.length <= shown && (cursor === null || wanted !== "");
  };
  const read = async (limit: number): Promise<void> => {
    const workspace = where.value;
    const parameters = new URLSearchParams({ limit: String(limit), ...(cursor ? { cursor } : {}) });
    const page = await ask<{ items: NoteSummary[]; next_cursor: string | null }>(`/api/workspaces/${workspace}/notes?${parameters}`);
    if (workspace !== where.value) return;
    all = [...all, ...page.items];
    cursor = page.next_cursor;
  };
  /** Reads until there are as many as are shown; for a search, all. */
  const fill = async (): Promise<void> => {
    show();
    reading ??= (async () => {
      while (where.value && cursor !== null && (filter.value.trim() !== "" || all.length < shown)) await read(filter.value.trim() ? PAGE_MAX : PAGE);
    })();
    try {
      await reading;
      show();
    } catch (error) {
      list.replaceChildren(h("li", { class: "problem" }, said(error)));
    } finally {
      reading = null;
    }
  };
  const begin = (): void => {
    [all, cursor, shown] = [[], where.value ? "" : null, PAGE];
    void fill();
  };
  more.append(button(t("app.more"), () => ((shown += PAGE), fill())));
  where.addEventListener("change", begin);
  filter.addEventListener("input", () => ((shown = PAGE), void fill()));
  begin();
  return h("section", { class: "page" }, h("h1", {}, t("app.notes")), h("div", { class: "form-row" }, field(t("admin.workspace"), where), field(t("notes.filter"), filter)), list, more);
}

function row(note: NoteSummary, open: () => void): HTMLElement {
  return h("li", {}, h("button", { type: "button", class: "note-row", onclick: open }, h("span", { class: "note-title", dir: "auto" }, note.title), h("span", { class: "muted", dir: "auto" }, note.path)));
}
