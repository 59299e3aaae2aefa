/** What somebody prefers: the account's own settings, and how this browser shows things. */

import { ask, said } from "./api";
import { appearance, type Appearance, setAppearance } from "./appearance";
import { state } from "./app-state";
import type { Locale, Preferences } from "./contracts";
import { button, dialog, field, form, h } from "./dom";
import { moment, setLocale, t } from "./i18n";
import { copyText } from "./markdown/code-block";

export function settingsDialog(changed: () => void): void {
  const now = appearance();
  const preferences = state.preferences;
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const put = async (change: Partial<Preferences>): Promise<void> => {
    try {
      state.preferences = await ask<Preferences>("/api/preferences", { method: "PUT", body: { ...state.preferences, ...change } });
      setLocale(state.preferences.locale);
      changed();
    } catch (error) {
      problem.textContent = said(error);
      problem.hidden = false;
    }
  };
  const language = choice([["en", "English"], ["zh", "中文"]], preferences.locale, async (value) => {
    await put({ locale: value as Locale });
    shown.close();
    settingsDialog(changed);
  });
  const themes = (["system", "light", "dark"] as const).map((one) => [one, t(`settings.theme.${one}`)] as [string, string]);
  const theme = choice(themes, now.theme, (value) => setAppearance({ theme: value as Appearance["theme"] }));
  const size: HTMLInputElement = h("input", { type: "range", min: 11, max: 20, value: now.codeSize, oninput: () => setAppearance({ codeSize: Number(size.value) }) });
  const syntax = (["math", "diagrams", "callouts"] as const).map((one) =>
    toggle(t(`settings.syntax.${one}`), preferences.markdown[one], (on) => void put({ markdown: { ...state.preferences.markdown, [one]: on } })),
  );
  const shown = dialog(
    t("app.settings"),
    field(t("settings.language"), language),
    field(t("settings.theme"), theme),
    h("fieldset", {}, h("legend", {}, t("settings.code")), field(t("settings.code.size"), size), toggle(t("settings.code.lines"), now.codeLines, (on) => setAppearance({ codeLines: on })), toggle(t("settings.code.wrap"), now.codeWrap, (on) => setAppearance({ codeWrap: on }))),
    h("fieldset", {}, h("legend", {}, t("settings.syntax")), ...syntax),
    tokens(),
    problem,
    h("div", { class: "dialog-actions" }, button(t("app.close"), () => shown.close(), { class: "button primary" })),
  );
}

function choice(options: [string, string][], value: string, onchange: (value: string) => unknown): HTMLSelectElement {
  const select = h("select", {}, ...options.map(([name, label]) => h("option", { value: name, selected: name === value }, label)));
  select.addEventListener("change", () => onchange(select.value));
  return select;
}

function toggle(label: string, on: boolean, onchange: (on: boolean) => void): HTMLElement {
  const box = h("input", { type: "checkbox", checked: on });
  box.addEventListener("change", () => onchange(box.checked));
  return h("label", { class: "toggle" }, box, label);
}

interface Token { id: string; name: string; role: string; created_at: string; token?: string }

function tokens(): HTMLElement {
  const list = h("ul", { class: "token-list" });
  const name = h("input", { "aria-label": t("settings.tokens.name"), placeholder: t("settings.tokens.name"), maxlength: 100, required: true });
  const fresh = h("div", { role: "status" });
  const load = async (): Promise<void> => {
    const { items } = await ask<{ items: Token[] }>("/api/auth/tokens").catch(() => ({ items: [] }));
    list.replaceChildren(
      ...items.map((one) =>
        h("li", {}, h("span", {}, one.name), h("span", { class: "muted" }, moment(one.created_at)), button(t("settings.tokens.revoke"), async () => {
          await ask(`/api/auth/tokens/${one.id}`, { method: "DELETE" });
          await load();
        }, { class: "button small" })),
      ),
    );
    if (items.length === 0) list.append(h("li", { class: "muted" }, t("settings.tokens.none")));
  };
  const make = async (): Promise<void> => {
    const { token } = await ask<Token>("/api/auth/tokens", { method: "POST", body: { name: name.value } });
    name.value = "";
    fresh.replaceChildren(h("p", {}, t("settings.tokens.once")), h("code", { class: "token" }, token!), button(t("code.copy"), (click) => copyText(token!).then(() => ((click.target as HTMLElement).textContent = t("copied"))), { class: "button small" }));
    await load();
  };
  void load();
  return h("fieldset", {}, h("legend", {}, t("settings.tokens")), list, form({ class: "form-row" }, make, name, h("button", { class: "button" }, t("settings.tokens.make"))), fresh);
}
