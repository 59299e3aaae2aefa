/** An exchange into a note: question and answer byte for byte, once (MN-9). */

import { ask, noteAddress, said } from "../api";
import { state } from "../app-state";
import type { Message } from "../contracts";
import { dialog, field, h } from "../dom";
import { t } from "../i18n";

const KEY = "marginalia.save_path";

export function saveDialog(workspace: string | null, title: string, question: string, answer: Message, saved: (text: string) => void): void {
  const writable = state.workspaces.filter((one) => one.access === "write");
  const where = h("select", {}, ...writable.map((one) => h("option", { value: one.id, selected: one.id === workspace }, one.title)));
  const path = h("input", { required: true, value: localStorage.getItem(KEY) ?? "Conversations.md", spellcheck: "false" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const form = h(
    "form",
    {
      onsubmit: async (event: Event) => {
        event.preventDefault();
        const to = /\.(md|markdown)$/i.test(path.value) ? path.value : `${path.value}.md`;
        try {
          const body = { question, answer: answer.content, conversation_title: title, message_id: answer.id };
          await ask(noteAddress(where.value, to, "/entries"), { method: "POST", body });
          localStorage.setItem(KEY, to);
          shown.close();
          saved(t("save.done", { path: to }));
        } catch (error) {
          problem.textContent = said(error);
          problem.hidden = false;
        }
      },
    },
    h("p", { class: "muted" }, t("save.explain")),
    field(t("save.workspace"), where),
    field(t("save.path"), path),
    problem,
    h("div", { class: "dialog-actions" }, h("button", { type: "button", class: "button", onclick: () => shown.close() }, t("app.cancel")), h("button", { class: "button primary" }, t("app.save"))),
  );
  const shown = dialog(t("save.title"), form);
}
