/** An exchange into a note: question and answer byte for byte, once (MN-9). */

import { ask, noteAddress } from "../api";
import { state } from "../app-state";
import type { Message } from "../contracts";
import { button, dialog, field, form, h } from "../dom";
import { t } from "../i18n";

const KEY = "marginalia.save_path";

export function saveDialog(workspace: string | null, title: string, question: string, answer: Message, saved: (text: string) => void): void {
  const writable = state.workspaces.filter((one) => one.access === "write");
  const where = h("select", {}, ...writable.map((one) => h("option", { value: one.id, selected: one.id === workspace }, one.title)));
  const path = h("input", { required: true, value: localStorage.getItem(KEY) ?? "Conversations.md", spellcheck: "false" });
  const save = async (): Promise<void> => {
    const to = /\.(md|markdown)$/i.test(path.value) ? path.value : `${path.value}.md`;
    const body = { question, answer: answer.content, conversation_title: title, message_id: answer.id };
    await ask(noteAddress(where.value, to, "/entries"), { method: "POST", body });
    localStorage.setItem(KEY, to);
    shown.close();
    saved(t("save.done", { path: to }));
  };
  const asked = form(
    {},
    save,
    h("p", { class: "muted" }, t("save.explain")),
    field(t("save.workspace"), where),
    field(t("save.path"), path),
    h("div", { class: "dialog-actions" }, button(t("app.cancel"), () => shown.close()), h("button", { class: "button primary" }, t("app.save"))),
  );
  const shown = dialog(t("save.title"), asked);
}
