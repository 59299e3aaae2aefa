/** One conversation: its active path, what is running in it, and the next message. */

import { ask, Problem, said, send } from "../api";
import { largestWorkspace, state, workspaceLabel } from "../app-state";
import type { Conversation, Injected, Message, Source, Workspace } from "../contracts";
import { button, h, icon, nextFrame } from "../dom";
import { LostFocus } from "./lost-focus";
import { locale, t } from "../i18n";
import { Composer, type Mode, type Written } from "./composer";
import { type MessageView, messageView } from "./message-view";
import { saveDialog } from "./save-dialog";
import { asMessage, newReply, type Reply } from "./turn-fold";
import { follow } from "./turn-reader";

/** Every tool that changes a note asks for consent, so all of them may be offered. */
const TOOLS = ["rag.search", "notes.search", "notes.read", "markdown.catalog", "markdown.compose", "notes.create", "notes.patch_markdown", "notes.append"];
const SLICE_MS = 12;
const NEAR_END_PX = 80;

export interface Surroundings {
  openSource(source: Source): void;
  openLink(target: string, workspace: string | null): void;
  /** The conversation has begun, or has an answer more. */
  changed(id: string): void;
  /** Its title is known, or has become another. */
  titled(): void;
  say(text: string): void;
}

interface Live { reply: Reply; turnId: string | null; reading: AbortController; settle: () => void }

export class ConversationView {
  private readonly log = h("div", { class: "log", role: "log", "aria-label": t("chat.log"), "aria-live": "off" });
  private readonly scroller = h("div", { class: "scroller", tabindex: -1 }, this.log);
  private readonly latest = h("button", { type: "button", class: "to-latest", hidden: true, "aria-label": t("chat.latest"), title: t("chat.latest"), onclick: () => this.toEnd() }, icon("down"));
  private readonly scope: HTMLSelectElement;
  private readonly composer: Composer;
  private readonly views = new Map<string, MessageView>();
  private live: Live | null = null;
  /** What was read here: notices and errors are told by events alone. */
  private readonly replies = new Map<string, Reply>();
  private messages: Message[] = [];
  private readonly focus = new LostFocus(this.log, () => this.composer.focus());
  title = "";
  private atEnd = true;
  private left = false;
  /** A question that failed on its way, and may be there all the same: asked again under the same id, it is not asked twice. */
  private unclear: { question: string; id: string } | null = null;
  private refreshing: Promise<void> | null = null;
  /** Pending while a turn was asked for and is not known yet: whatever comes next belongs behind it. */
  private beginning: Promise<void> | null = null;
  private titles: string[] = [];
  readonly element: HTMLElement;

  constructor(private id: string | null, private readonly around: Surroundings) {
    this.scope = h("select", { class: "scope", "aria-label": t("chat.workspace"), title: t("chat.workspace") }, h("option", { value: "" }, t("chat.workspace.all")), ...state.workspaces.map((one: Workspace) => h("option", { value: one.id }, workspaceLabel(one))));
    this.scope.value = id ? "" : (localStorage.getItem("marginalia.workspace") ?? largestWorkspace()?.id ?? "");
    if (this.scope.selectedIndex < 0) this.scope.value = "";
    this.scope.addEventListener("change", () => {
      localStorage.setItem("marginalia.workspace", this.scope.value);
      void this.loadTitles();
    });
    this.composer = new Composer(id, () => this.workspace, (written) => this.write(written), () => void this.stop(), this.scope);
    this.element = h("section", { class: "conversation" }, this.scroller, this.latest, this.composer.element);
    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.log.addEventListener("click", (event) => {
      const link = (event.target as Element).closest<HTMLElement>("[data-note]");
      if (!link) return;
      event.preventDefault();
      this.around.openLink(link.dataset["note"]!, this.workspace);
    });
    new ResizeObserver(() => this.atEnd && this.toEnd()).observe(this.log);
    if (id === null) this.showWelcome();
    void this.loadTitles();
  }

  get conversationId(): string | null {
    return this.id;
  }

  get workspace(): string | null {
    return this.scope.value || null;
  }

  /** Shows it. Raises a `Problem` where there is none. */
  async open(): Promise<void> {
    if (this.id) await this.refresh();
    this.composer.focus();
  }

  /** Stops reading; what runs goes on and is found again. */
  leave(): void {
    this.left = true;
    this.live?.reading.abort();
  }

  /** What may have happened meanwhile in another window. Raises a `Problem` where it is gone. */
  async look(): Promise<void> {
    if (!this.id || this.beginning) return;
    await this.refresh().catch((error: unknown) => {
      if (isGone(error)) throw error;
    });
  }

  private async write({ message, references, mode }: Written): Promise<void> {
    await this.begin({ message, ...(references.length > 0 ? { references } : {}) }, mode);
  }

  /** Asks; returns once the question is accepted. */
  private async begin(body: Record<string, unknown>, mode: Mode = "chat"): Promise<void> {
    await this.beginning;
    let settle = (): void => undefined;
    this.beginning = new Promise((resolve) => {
      settle = () => {
        this.beginning = null;
        resolve();
      };
    });
    const asked = {
      ...body,
      ...(this.id ? { conversation_id: this.id } : {}),
      ...(this.workspace ? { workspace: this.workspace } : {}),
      ...(mode === "agent" ? { mode, allowed_tools: TOOLS } : {}),
      locale: locale(),
      on_disconnect: "keep",
    };
    const question = JSON.stringify(asked);
    const id = this.unclear?.question === question ? this.unclear.id : clientId();
    try {
      const response = await send("/api/chat", { method: "POST", body: { ...asked, client_message_id: id } });
      this.unclear = null;
      this.atEnd = true;
      this.read(newReply(), null, response, settle);
    } catch (error) {
      settle();
      this.unclear = mayHaveArrived(error) ? { question, id } : null;
      throw error;
    }
  }

  /** Another version is asked for once, however often that is clicked before it is there. */
  private async regenerate(message: Message): Promise<void> {
    if (this.beginning) return;
    await this.begin({ retry_message_id: message.id }, modeOf(message));
    await this.beginning;
  }

  private read(reply: Reply, turnId: string | null, response: Response | null, settle = (): void => undefined): void {
    this.live?.reading.abort(); // the newest turn is the one that is shown
    this.live?.settle();
    const live: Live = { reply, turnId, reading: new AbortController(), settle };
    this.live = live;
    if (this.left) live.reading.abort();
    this.composer.running(true);
    let known = false;
    const listener = {
      changed: (): void => {
        if (reply.conversationId && !known) {
          known = true;
          void this.began(reply).finally(settle);
        }
        this.show(reply);
      },
      broken: (): void => this.around.say(t("chat.lost")),
    };
    follow(reply, turnId, response, live.reading.signal, listener)
      .catch((error: unknown) => this.around.say(said(error)))
      .finally(() => this.ended(live));
  }

  private async began(reply: Reply): Promise<void> {
    if (!this.id) {
      this.id = reply.conversationId;
      this.composer.began(this.id);
      this.log.querySelector(".welcome")?.remove();
    }
    this.around.changed(this.id);
    await this.refresh().catch(() => undefined); // read once more at the end
  }

  private show(reply: Reply): void {
    this.replies.set(reply.responseId, reply);
    const view = this.views.get(reply.responseId);
    if (!view) return;
    const stored = this.messages.find((one) => one.id === reply.responseId);
    view.update(asMessage(reply, stored), { notices: reply.notices, error: reply.error, live: reply.cited === null });
    const question = this.messages.find((one) => one.id === reply.userMessageId);
    if (question && reply.injected.length > 0 && question.injected.length === 0) {
      question.injected = reply.injected;
      this.views.get(question.id)?.update(question);
    }
    this.composer.running(reply.cited === null);
  }

  private async ended(live: Live): Promise<void> {
    live.settle();
    if (this.live !== live) return;
    this.live = null;
    if (this.left) return;
    this.composer.running(false);
    if (this.id) this.around.changed(this.id);
    await this.refresh().catch((error: unknown) => this.around.say(said(error)));
  }

  private async stop(): Promise<void> {
    await this.beginning; // before that it has no name to be stopped by
    const turn = this.live?.reply.turnId || this.live?.turnId;
    if (turn) await ask(`/api/chat/turns/${turn}/cancel`, { method: "POST" }).catch((error: unknown) => this.around.say(said(error)));
  }

  /** Reads the conversation and shows its path. */
  private refresh(): Promise<void> {
    return this.inOrder(() => ask<Conversation>(`/api/chat/conversations/${this.id}`));
  }

  /** One at a time, what was asked for last is shown last. */
  private inOrder(read: () => Promise<Conversation>): Promise<void> {
    const before = this.refreshing;
    const now = (async (): Promise<void> => {
      await before?.catch(() => undefined);
      await this.showPath(await read());
    })();
    this.refreshing = now;
    return now;
  }

  private async showPath(conversation: Conversation): Promise<void> {
    if (this.left) return;
    if (this.title !== conversation.title) {
      this.title = conversation.title;
      this.around.titled();
    }
    this.messages = conversation.messages;
    if (conversation.workspace && !this.views.size) {
      this.scope.value = conversation.workspace;
      if (this.scope.selectedIndex < 0) this.scope.value = "";
      void this.loadTitles();
    }
    const running = this.messages.at(-1);
    // Of an answer that failed, its events say why.
    const untold = running?.status === "failed" && !this.replies.has(running.id);
    const read = this.live?.reply.responseId;
    // Another window may have begun a newer one than is read here.
    const free = !this.live || (!this.beginning && read !== "" && read !== running?.id);
    const goesOn = running?.status === "running" || running?.status === "awaiting_approval";
    if (running?.turn_id && ((free && goesOn) || (!this.live && untold))) this.read(newReply(), running.turn_id, null);
    await this.place();
  }

  /** Every message in its place; from the end, where the reader is, and in slices, since there may be thousands. */
  private async place(): Promise<void> {
    const path = new Set(this.messages.map((message) => message.id));
    this.focus.note();
    for (const [id, view] of this.views) {
      if (path.has(id)) continue;
      view.element.remove();
      this.views.delete(id);
    }
    let began = performance.now();
    let after: Element | null = null;
    for (const message of [...this.messages].reverse()) {
      let view = this.views.get(message.id);
      const live = this.live?.reply.responseId === message.id ? this.live.reply : null;
      if (!view) {
        view = messageView(message, this.actions());
        this.views.set(message.id, view);
      }
      const told = this.replies.get(message.id);
      if (live) this.show(live);
      else view.update(message, told && { notices: told.notices, error: told.error, live: false });
      if (view.element.parentElement !== this.log || view.element.nextElementSibling !== after) this.log.insertBefore(view.element, after);
      after = view.element;
      if (performance.now() - began > SLICE_MS) {
        if (this.atEnd) this.toEnd();
        await nextFrame();
        began = performance.now();
        if (this.left) return;
      }
    }
    this.focus.giveBack(this.live !== null);
    if (this.atEnd) this.toEnd();
  }

  private actions() {
    const failing = (error: unknown): void => this.around.say(said(error));
    return {
      openSource: (source: Source) => this.around.openSource(source),
      openInjected: (item: Injected) => this.around.openLink(encodeURI(item.ref), this.workspace),
      regenerate: (message: Message) => this.regenerate(message).catch(failing),
      edit: (message: Message, text: string) => {
        const reply = this.messages.find((one) => one.parent_message_id === message.id);
        return this.begin({ retry_message_id: message.id, message: text }, reply && modeOf(reply));
      },
      select: (id: string) => {
        this.atEnd = false;
        return this.inOrder(() => ask<Conversation>(`/api/chat/conversations/${this.id}/messages/${id}/select`, { method: "POST" })).catch(failing);
      },
      save: (message: Message) => {
        const question = this.messages.find((one) => one.id === message.parent_message_id)?.content ?? "";
        saveDialog(this.workspace, this.title, question, message, (text) => this.around.say(text));
      },
      titles: () => this.titles,
    };
  }

  private async loadTitles(): Promise<void> {
    if (!this.workspace) return;
    this.titles = await ask<{ titles: string[] }>(`/api/mentions/lexicon?workspace=${this.workspace}`).then(({ titles }) => titles, () => []);
  }

  private scrolled(): void {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    this.atEnd = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    this.latest.hidden = this.atEnd;
  }

  private toEnd(): void {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  private showWelcome(): void {
    const example = (text: string): HTMLElement => button(text, () => this.composer.fill(text), { class: "button example" });
    this.log.append(
      h("div", { class: "welcome" }, h("h1", {}, t("chat.empty.title")), h("p", {}, t(state.workspaces.length > 0 ? "chat.empty.text" : "chat.empty.no_workspace")), h("div", { class: "examples" }, example(t("chat.empty.first")), example(t("chat.empty.second")))),
    );
  }
}

/** A reply that used other tools than the search was made in agent mode; made anew, it is so again. */
function modeOf(message: Message): Mode {
  return message.tool_calls.some((call) => call.name !== "rag.search") ? "agent" : "chat";
}

function mayHaveArrived(error: unknown): boolean {
  return error instanceof Problem && (error.status === 0 || error.status >= 500);
}

/** `crypto.randomUUID` is missing on plain http away from this machine. */
function clientId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function isGone(error: unknown): boolean {
  return error instanceof Problem && error.status === 404;
}
