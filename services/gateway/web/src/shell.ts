/** The frame of the client: conversations at the side, what is chosen in the middle, a note beside it. */

import { adminPage } from "./admin/admin-page";
import { ask, Problem, said } from "./api";
import { state } from "./app-state";
import { ConversationView, isGone } from "./chat/conversation-view";
import { ConversationList } from "./conversation-list";
import type { IndexStatus, Source, Workspace } from "./contracts";
import { button, dialog, form, h, icon, iconButton } from "./dom";
import { number, t } from "./i18n";
import { codeAction } from "./markdown/code-block";
import { plainText } from "./markdown/plain-text";
import { noteOf } from "./notes/note-link";
import { NotePanel } from "./notes/note-panel";
import { notesPage } from "./notes/notes-page";
import { settingsDialog } from "./settings-dialog";

const INDEX_POLL_MS = 2000;
const INDEX_REST_MS = 30_000;
const SAID_MS = 6000;

export class Shell {
  private readonly list = new ConversationList(() => this.markCurrent());
  private readonly progress = h("div", { class: "index-progress", role: "status", hidden: true });
  private readonly bar = h("div", { class: "top-title" });
  private readonly main = h("main", { class: "main" });
  private readonly said = h("div", { class: "said", role: "status", popover: "manual" });
  private readonly panel = new NotePanel((shown) => this.openNote(shown.workspace, shown.path, undefined, shown.fragment), () => delete this.element.dataset["beside"]);
  private readonly windows = new BroadcastChannel("marginalia");
  private readonly life = new AbortController();
  private conversation: ConversationView | null = null;
  readonly element: HTMLElement;

  constructor(private readonly again: () => void, private readonly signedOut: () => void) {
    const link = (hash: string, name: Parameters<typeof icon>[0], label: string): HTMLElement => h("a", { href: hash, class: "nav-link" }, icon(name), label);
    this.element = h(
      "div",
      { class: "shell" },
      h("a", { href: "#composer", class: "skip", onclick: (event: Event) => (event.preventDefault(), document.getElementById("composer")?.focus()) }, t("app.skip")),
      h(
        "nav",
        { class: "side", "aria-label": t("app.conversations") },
        h("div", { class: "side-head" }, h("span", { class: "wordmark" }, "Marginalia"), iconButton("close", t("app.close"), () => this.menu(false), { class: "icon-button only-narrow" })),
        h("a", { href: "#/", class: "nav-link new-link" }, icon("plus"), t("app.new")),
        this.list.element,
        this.progress,
        h(
          "div",
          { class: "side-foot" },
          link("#/notes", "note", t("app.notes")),
          state.account?.role === "admin" && link("#/admin/index", "chart", t("app.admin")),
          h("button", { type: "button", class: "nav-link", onclick: () => settingsDialog(this.again) }, icon("settings"), t("app.settings")),
          h("button", { type: "button", class: "nav-link", onclick: () => this.signOut() }, icon("left"), `${t("app.sign_out")} (${state.account?.username ?? ""})`),
        ),
      ),
      h("div", { class: "middle" }, h("header", { class: "top" }, iconButton("menu", t("app.menu"), () => this.menu(true), { class: "icon-button only-narrow" }), this.bar), this.main),
      this.panel.element,
      this.said,
    );
  }

  begin(): void {
    const { signal } = this.life;
    window.addEventListener("hashchange", () => void this.route(), { signal });
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.look(), { signal });
    window.addEventListener("focus", () => this.look(), { signal });
    window.addEventListener("unhandledrejection", (event) => this.failed(event), { signal });
    this.windows.onmessage = (event: MessageEvent<{ conversation: string }>) => {
      void this.list.load();
      if (event.data.conversation === this.conversation?.conversationId) void this.lookAtConversation();
    };
    this.element.addEventListener("click", (event) => {
      const action = (event.target as Element).closest<HTMLElement>(".code-action");
      if (action) void codeAction(action);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing || (event.target as Element).closest("dialog")) return;
      this.menu(false);
      this.panel.close();
    }, { signal });
    void this.list.load();
    void this.watchIndex();
    void this.route();
  }

  leave(): void {
    this.life.abort();
    this.windows.close();
    this.conversation?.leave();
    this.panel.close();
  }

  private look(): void {
    void this.list.load();
    void this.lookAtConversation();
  }

  private async lookAtConversation(): Promise<void> {
    const view = this.conversation;
    await view?.look().catch((error: unknown) => this.cannotShow(view, error));
  }

  /** What no part of the page has told by itself. */
  private failed(event: PromiseRejectionEvent): void {
    if (!(event.reason instanceof Problem)) return;
    event.preventDefault();
    this.say(said(event.reason));
  }

  private async route(): Promise<void> {
    this.menu(false);
    const [place = "", one = "", two = ""] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
    if (place === "c" && one === this.conversation?.conversationId) return this.markCurrent();
    this.conversation?.leave();
    this.conversation = null;
    if (place === "notes") {
      await this.loadWorkspaces();
      this.show(t("app.notes"), notesPage((workspace, path) => this.openNote(workspace, path)));
    } else if (place === "admin" && state.account?.role === "admin") this.show(t("app.admin"), adminPage(one || "index", two));
    else await this.openConversation(place === "c" ? one : null);
  }

  private show(title: string, element: HTMLElement): void {
    this.bar.replaceChildren(h("span", {}, title));
    document.title = title ? `${title} · Marginalia` : "Marginalia";
    this.main.replaceChildren(element);
    this.markCurrent();
  }

  private async openConversation(id: string | null): Promise<void> {
    const view: ConversationView = new ConversationView(id, {
      openSource: (source) => this.openSource(source),
      openLink: (target, workspace) => this.openLink(target, workspace),
      changed: (changed) => this.changed(view, changed),
      titled: () => this.conversation === view && this.titleBar(view),
      say: (text) => this.say(text),
    });
    this.conversation = view;
    this.show(id ? "" : t("app.new"), view.element);
    await view.open().catch((error: unknown) => this.cannotShow(view, error));
  }

  private cannotShow(view: ConversationView, error: unknown): void {
    if (this.conversation !== view) return;
    view.leave();
    this.conversation = null;
    const again = isGone(error) ? null : button(t("app.retry"), () => this.route());
    this.show("", h("div", { class: "page" }, h("p", { class: "problem" }, isGone(error) ? t("chat.gone") : said(error)), again));
  }

  private changed(view: ConversationView, id: string): void {
    if (this.conversation === view && !location.hash.startsWith(`#/c/${id}`)) history.replaceState(null, "", `#/c/${id}`);
    this.windows.postMessage({ conversation: id });
    void this.list.load();
  }

  private titleBar(view: ConversationView): void {
    document.title = `${view.title} · Marginalia`;
    this.bar.replaceChildren(
      h("span", { class: "top-text", dir: "auto" }, view.title),
      iconButton("edit", t("app.rename"), () => this.rename(view)),
      iconButton("trash", t("app.delete"), () => this.remove(view)),
    );
  }

  private rename(view: ConversationView): void {
    const name = h("input", { value: view.title, maxlength: 200, required: true, "aria-label": t("app.rename"), dir: "auto" });
    const rename = async (): Promise<void> => {
      await ask(`/api/chat/conversations/${view.conversationId}`, { method: "PATCH", body: { title: name.value } });
      shown.close();
      this.tell(view);
      await view.look();
    };
    const shown = dialog(t("app.rename"), form({}, rename, name, h("div", { class: "dialog-actions" }, button(t("app.cancel"), () => shown.close()), h("button", { class: "button primary" }, t("app.save")))));
    name.select();
  }

  private remove(view: ConversationView): void {
    const remove = async (): Promise<void> => {
      await ask(`/api/chat/conversations/${view.conversationId}`, { method: "DELETE" });
      shown.close();
      location.hash = "#/";
      this.tell(view);
    };
    const sure = h("p", {}, t("app.delete.sure", { title: view.title }));
    const shown = dialog(t("app.delete"), form({}, remove, sure, h("div", { class: "dialog-actions" }, button(t("app.cancel"), () => shown.close()), h("button", { class: "button danger" }, t("app.delete")))));
  }

  /** Other windows, and the list here, that something became of the conversation. */
  private tell(view: ConversationView): void {
    this.windows.postMessage({ conversation: view.conversationId });
    void this.list.load();
  }

  private markCurrent(): void {
    const here = location.hash || "#/";
    const isAdmin = here.startsWith("#/admin"); // of whose tabs the link names the first
    for (const link of this.element.querySelectorAll<HTMLAnchorElement>(".side a")) {
      const to = link.getAttribute("href")!;
      if (to === here || (isAdmin && to.startsWith("#/admin"))) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  private openSource(source: Source): void {
    if (!source.workspace || !source.file_path) return this.say(source.excerpt ? plainText(source.excerpt) : t("source.unnamed"));
    this.openNote(source.workspace, source.file_path, source);
  }

  private openNote(workspace: string, path: string, source?: Source, fragment?: string): void {
    this.element.dataset["beside"] = "";
    void this.panel.show({ workspace, path, ...(source ? { source } : {}), ...(fragment ? { fragment } : {}) });
  }

  private openLink(target: string, workspace: string | null): void {
    const found = noteOf(target, state.workspaces, workspace);
    if (found) this.openNote(found.workspace, found.path, undefined, found.fragment);
    else this.say(t("notes.deleted"));
  }

  private async loadWorkspaces(): Promise<void> {
    const { items } = await ask<{ items: Workspace[] }>("/api/workspaces").catch(() => ({ items: state.workspaces })); // those known before
    state.workspaces = items;
  }

  /** How far indexing is: often while something is going on, else now and then. */
  private async watchIndex(): Promise<void> {
    while (!this.life.signal.aborted) {
      const status = document.visibilityState === "visible" ? await ask<IndexStatus>("/api/retrieval/status").catch(() => null) : null;
      if (status) this.showIndex(status);
      const busy = status && status.pending + status.unembedded > 0;
      await new Promise((resolve) => setTimeout(resolve, busy ? INDEX_POLL_MS : INDEX_REST_MS));
    }
  }

  private showIndex(status: IndexStatus): void {
    const lines = [
      status.pending > 0 && t("index.progress", { pending: number(status.pending) }),
      status.pending === 0 && status.unembedded > 0 && t("index.vectors", { n: number(status.unembedded) }),
      status.held > 0 && t("index.held", { n: number(status.held) }),
      status.last_error && t("index.error", { why: status.last_error }),
    ].filter((line): line is string => Boolean(line));
    this.progress.hidden = lines.length === 0;
    const total = status.indexed + status.pending + status.unembedded;
    const waiting = status.pending || status.unembedded;
    this.progress.replaceChildren(...lines.map((line) => h("p", {}, line)));
    if (waiting > 0) this.progress.append(h("progress", { max: total, value: total - waiting, "aria-label": lines[0] ?? "" }));
  }

  private say(text: string): void {
    for (const line of this.said.querySelectorAll("p")) if (line.textContent === text) line.remove();
    const line = h("p", {}, text);
    this.said.append(line);
    // Over a dialog, too.
    if (this.said.matches(":popover-open")) this.said.hidePopover();
    this.said.showPopover();
    setTimeout(() => {
      line.remove();
      if (this.said.childElementCount === 0 && this.said.isConnected) this.said.hidePopover();
    }, SAID_MS);
  }

  private menu(open: boolean): void {
    this.element.toggleAttribute("data-menu", open);
  }

  private async signOut(): Promise<void> {
    await ask("/api/auth/logout", { method: "POST" }).catch(() => undefined);
    history.replaceState(null, "", "#/");
    this.signedOut();
  }
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
