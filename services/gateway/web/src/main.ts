/** Where the client begins: who is signed in decides what is shown. */

import { ask, began, Problem, said, whenSignedOut } from "./api";
import { applyAppearance } from "./appearance";
import { state } from "./app-state";
import type { Preferences, Session, Workspace } from "./contracts";
import { button, h } from "./dom";
import { locale, setLocale, t } from "./i18n";
import { Shell } from "./shell";
import { signIn } from "./sign-in";
import "./styles/base.css";
import "./styles/conversation.css";
import "./styles/markdown.css";
import "./styles/pages.css";
import "./styles/print.css";

const root = document.getElementById("app")!;
let shell: Shell | null = null;

async function start(): Promise<void> {
  root.replaceChildren(h("p", { class: "starting" }, t("app.loading")));
  try {
    const session = await ask<Session>("/api/auth/session");
    await signedIn(session);
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return signedOut();
    root.replaceChildren(h("div", { class: "starting" }, h("p", { class: "problem" }, said(error)), button(t("app.retry"), start)));
  }
}

async function signedIn(session: Session): Promise<void> {
  began(session);
  state.account = session.account;
  const [preferences, workspaces] = await Promise.all([ask<Preferences>("/api/preferences"), ask<{ items: Workspace[] }>("/api/workspaces").catch(() => ({ items: [] }))]);
  state.preferences = preferences;
  state.workspaces = workspaces.items;
  setLocale(preferences.locale);
  show();
}

function show(): void {
  shell?.leave();
  shell = new Shell(show, signedOut);
  root.replaceChildren(shell.element);
  shell.begin();
}

/** Shown once, however many requests are refused: what is being typed there stays. */
function signedOut(ended = false): void {
  if (root.querySelector(".sign-in")) return;
  shell?.leave();
  shell = null;
  root.replaceChildren(signIn(signedIn, ended && state.account !== null));
  state.account = null;
  document.title = "Marginalia";
  root.querySelector<HTMLInputElement>("[name=password]")!.focus();
}

applyAppearance();
setLocale(locale());
whenSignedOut(() => signedOut(true));
void start();
