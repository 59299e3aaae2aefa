/** Signing in, which explains where a first password comes from. */

import { ask, said } from "./api";
import type { Session } from "./contracts";
import { field, h } from "./dom";
import { t } from "./i18n";

/** `ended`: somebody was signed in until now. */
export function signIn(done: (session: Session) => Promise<void>, ended: boolean): HTMLElement {
  const username = h("input", { name: "username", autocomplete: "username", required: true, value: "admin", autocapitalize: "none", spellcheck: "false" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const submit = h("button", { class: "button primary" }, t("signin.submit"));
  const enter = async (event: Event): Promise<void> => {
    event.preventDefault();
    submit.disabled = true;
    problem.hidden = true;
    try {
      await done(await ask<Session>("/api/auth/login", { method: "POST", body: { username: username.value, password: password.value } }));
    } catch (error) {
      problem.textContent = said(error);
      problem.hidden = false;
      password.select();
    } finally {
      submit.disabled = false;
    }
  };
  return h(
    "main",
    { class: "sign-in" },
    h(
      "form",
      { onsubmit: enter },
      h("h1", { class: "wordmark" }, "Marginalia"),
      h("p", { class: "muted" }, t("signin.local")),
      ended && h("p", { class: "notice", role: "status" }, t("signin.ended")),
      field(t("signin.username"), username),
      field(t("signin.password"), password),
      problem,
      submit,
      h("details", { class: "first-run", open: true }, h("summary", {}, t("signin.first")), h("p", {}, t("signin.first.how"))),
    ),
  );
}
