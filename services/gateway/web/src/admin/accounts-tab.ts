/** Who may sign in. */

import { ask, said } from "../api";
import { state } from "../app-state";
import { button, field, h } from "../dom";
import { moment, t } from "../i18n";
import { filled, table } from "./table";

interface Details { id: string; username: string; role: "admin" | "member"; disabled: boolean; created_at: string }

export function accountsTab(): HTMLElement {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const attempt = async (work: () => Promise<unknown>): Promise<void> => {
    problem.hidden = true;
    try {
      await work();
      await place.again();
    } catch (error) {
      problem.textContent = said(error);
      problem.hidden = false;
    }
  };
  const place = filled(async () => {
    const { items } = await ask<{ items: Details[] }>("/api/accounts");
    const rows = items.map((one) => [
      h("span", {}, one.username, one.disabled && h("span", { class: "badge" }, t("admin.disabled"))),
      t(`admin.role.${one.role}`),
      moment(one.created_at),
      one.id !== state.account?.id && button(t(one.disabled ? "admin.enable" : "admin.disable"), () => attempt(() => ask(`/api/accounts/${one.id}`, { method: "PATCH", body: { disabled: !one.disabled } })), { class: "button small" }),
    ]);
    return [table([t("admin.username"), t("admin.role"), t("admin.when"), ""], rows, t("admin.accounts"))];
  });
  const username = h("input", { required: true, maxlength: 100, autocomplete: "off" });
  const password = h("input", { type: "password", required: true, minlength: 8, autocomplete: "new-password" });
  const role = h("select", {}, ...(["member", "admin"] as const).map((one) => h("option", { value: one }, t(`admin.role.${one}`))));
  const make = (event: Event): void => {
    event.preventDefault();
    void attempt(async () => {
      await ask("/api/accounts", { method: "POST", body: { username: username.value, password: password.value, role: role.value } });
      (event.target as HTMLFormElement).reset();
    });
  };
  const form = h("form", { class: "form-row", onsubmit: make }, field(t("admin.username"), username), field(t("admin.password"), password), field(t("admin.role"), role), h("button", { class: "button primary" }, t("admin.create")));
  return h("div", {}, place.element, h("h2", {}, t("admin.create")), form, problem);
}
