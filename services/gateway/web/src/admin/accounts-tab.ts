/** Who may sign in, and to which notes. */

import { ask } from "../api";
import { state } from "../app-state";
import type { Account } from "../contracts";
import { button, dialog, field, form, h } from "../dom";
import { moment, t } from "../i18n";
import { membersTable } from "./members";
import { filled, table } from "./table";

interface Details extends Account { disabled: boolean; created_at: string }

export function accountsTab(): HTMLElement {
  const change = async (account: Details, body: Record<string, unknown>): Promise<void> => {
    await ask(`/api/accounts/${account.id}`, { method: "PATCH", body });
    await place.again();
  };
  const place = filled(async () => {
    const { items } = await ask<{ items: Details[] }>("/api/accounts");
    const rows = items.map((one) => [
      h("span", {}, one.username, one.disabled && h("span", { class: "badge" }, t("admin.disabled"))),
      one.id === state.account?.id ? t(`admin.role.${one.role}`) : roleOf(one, (role) => change(one, { role })),
      moment(one.created_at),
      h(
        "span",
        { class: "row-actions" },
        button(t("admin.password.new"), () => passwordDialog(one, (password) => change(one, { password })), { class: "button small" }),
        one.id !== state.account?.id && button(t(one.disabled ? "admin.enable" : "admin.disable"), () => change(one, { disabled: !one.disabled }), { class: "button small" }),
      ),
    ]);
    const accounts = table([t("admin.username"), t("admin.role"), t("admin.when"), ""], rows, t("admin.accounts"));
    return [accounts, h("h2", {}, t("admin.members")), await membersTable(items)];
  });
  const username = h("input", { required: true, maxlength: 100, autocomplete: "off" });
  const password = h("input", { type: "password", required: true, minlength: 8, autocomplete: "new-password" });
  const role = h("select", {}, ...roles("member"));
  const make = async (made: HTMLFormElement): Promise<void> => {
    await ask("/api/accounts", { method: "POST", body: { username: username.value, password: password.value, role: role.value } });
    made.reset();
    await place.again();
  };
  const fields = [field(t("admin.username"), username), field(t("admin.password"), password), field(t("admin.role"), role)];
  return h("div", {}, place.element, h("h2", {}, t("admin.create")), form({ class: "form-row" }, make, ...fields, h("button", { class: "button primary" }, t("admin.create"))));
}

function roles(chosen: Account["role"]): HTMLElement[] {
  return (["member", "admin"] as const).map((one) => h("option", { value: one, selected: one === chosen }, t(`admin.role.${one}`)));
}

function roleOf(account: Details, change: (role: string) => Promise<void>): HTMLElement {
  const choice = h("select", { "aria-label": `${account.username}, ${t("admin.role")}` }, ...roles(account.role));
  choice.addEventListener("change", () => void change(choice.value));
  return choice;
}

/** Another password ends the account's sessions. */
function passwordDialog(account: Details, change: (password: string) => Promise<void>): void {
  const password = h("input", { type: "password", required: true, minlength: 8, autocomplete: "new-password" });
  const save = async (): Promise<void> => {
    await change(password.value);
    shown.close();
  };
  const cancel = button(t("app.cancel"), () => shown.close());
  const title = `${t("admin.password.new")}: ${account.username}`;
  const shown = dialog(title, form({}, save, field(t("admin.password"), password), h("div", { class: "dialog-actions" }, cancel, h("button", { class: "button primary" }, t("app.save")))));
}
