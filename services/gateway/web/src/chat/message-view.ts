/** A message in the conversation, and what can be done with it. */

import type { Injected, Message, Source } from "../contracts";
import { button, form, h, iconButton, isComposing, reused } from "../dom";
import { moment, number, t, told } from "../i18n";
import { state } from "../app-state";
import { copyText } from "../markdown/code-block";
import { LiveDocument } from "../markdown/live-document";
import { ActivityBox } from "./activity-box";
import { approvalCard } from "./approval-card";
import { markTitles } from "./mention-text";
import { SourceCards, withSources } from "./source-cards";
import type { Said } from "./turn-fold";

export interface MessageActions {
  openSource(source: Source): void;
  openInjected(item: Injected): void;
  regenerate(message: Message): Promise<void>;
  edit(message: Message, text: string): Promise<void>;
  select(id: string): Promise<void>;
  save(message: Message): void;
  titles(): string[];
}

/** What is known beside the message itself while its turn is being read. */
export interface Extras { notices: Said[]; error: Said | null; live: boolean }
const NONE: Extras = { notices: [], error: null, live: false };

export interface MessageView { readonly element: HTMLElement; update(message: Message, extras?: Extras): void }

export function messageView(message: Message, actions: MessageActions): MessageView {
  return message.role === "user" ? new Question(message, actions) : new Answer(message, actions);
}

function versionArrows(message: Message, actions: MessageActions): HTMLElement | null {
  const total = message.versions.length;
  const at = message.versions.indexOf(message.id);
  if (total < 2) return null;
  const go = (to: number): Promise<void> => actions.select(message.versions[to]!);
  return h(
    "span",
    { class: "versions", role: "group", "aria-label": t("chat.version", { n: at + 1, total }) },
    iconButton("left", t("chat.version.previous"), () => go(at - 1), { disabled: at <= 0 }),
    h("span", { class: "version-number", "aria-hidden": "true" }, `${at + 1}/${total}`),
    iconButton("right", t("chat.version.next"), () => go(at + 1), { disabled: at >= total - 1 }),
  );
}

class Question implements MessageView {
  private readonly text = h("div", { class: "markdown question-text" });
  private readonly injected = h("details", { class: "injected", hidden: true });
  private readonly foot = h("footer", { class: "message-actions" });
  readonly element: HTMLElement;
  private readonly document = new LiveDocument(this.text, {});
  private message: Message;

  constructor(message: Message, private readonly actions: MessageActions) {
    this.message = message;
    this.element = h("article", { class: "message question", "aria-label": t("chat.you"), "data-id": message.id }, this.text, this.foot, this.injected);
    this.document.onchange = () => this.markTitles();
    this.update(message);
  }

  update(message: Message): void {
    const same = reused(this.element, [message.content, message.versions, message.injected]);
    this.message = message;
    if (same) return;
    this.document.update(message.content, true);
    this.foot.replaceChildren(
      ...[versionArrows(message, this.actions), iconButton("edit", t("chat.edit"), () => this.edit()), h("time", { datetime: message.created_at }, moment(message.created_at))].filter((one) => one !== null),
    );
    this.showInjected(message.injected);
  }

  private showInjected(items: Injected[]): void {
    this.injected.hidden = items.length === 0;
    const rows = items.map((item) =>
      h(
        "li",
        {},
        h("button", { type: "button", class: "link", onclick: () => this.actions.openInjected(item) }, item.title),
        h("span", { class: "muted" }, ` ${item.path} · ${t("injected.characters", { n: number(item.characters) })}`),
        item.form === "outline" && h("span", { class: "muted" }, ` · ${t("injected.outline")}`),
        item.cited && h("span", { class: "badge beside" }, t("injected.cited")),
      ),
    );
    this.injected.replaceChildren(h("summary", {}, t("injected.title", { n: items.length })), h("ul", {}, ...rows));
  }

  /** `@title` is decoration: it stands out, and refers to nothing (MN-7). */
  private markTitles(): void {
    const titles = this.actions.titles();
    const walker = document.createTreeWalker(this.text, NodeFilter.SHOW_TEXT);
    const texts: Text[] = [];
    while (walker.nextNode()) texts.push(walker.currentNode as Text);
    for (const text of texts.filter((one) => one.data.includes("@") && !one.parentElement!.closest("code, a, .title-mark"))) {
      const pieces = markTitles(text.data, titles);
      if (pieces.some((piece) => piece.title)) text.replaceWith(...pieces.map((piece) => (piece.title ? h("span", { class: "title-mark" }, piece.text) : piece.text)));
    }
  }

  private edit(): void {
    const area = h("textarea", { class: "edit-area", "aria-label": t("chat.edit"), rows: 3, dir: "auto" });
    area.value = this.message.content;
    const close = (): void => {
      editing.replaceWith(this.text);
      this.foot.hidden = false;
      this.foot.querySelector<HTMLElement>("button")?.focus();
    };
    const onkeydown = (event: KeyboardEvent): void => {
      if (isComposing(event)) return;
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) editing.requestSubmit();
      if (event.key !== "Escape") return;
      event.preventDefault(); // it closes this alone
      close();
    };
    const editing: HTMLFormElement = form(
      { class: "edit", onkeydown },
      () => this.actions.edit(this.message, area.value).then(close),
      area,
      h("div", { class: "edit-actions" }, h("button", { class: "button primary" }, t("chat.edit.submit")), button(t("app.cancel"), close)),
    );
    this.text.replaceWith(editing);
    this.foot.hidden = true;
    area.focus();
  }
}

class Answer implements MessageView {
  private readonly box = new ActivityBox();
  private readonly text = h("div", { class: "markdown answer-text" });
  private readonly waiting = h("p", { class: "waiting", hidden: true }, t("chat.waiting"));
  private readonly remarks = h("div", { class: "remarks", role: "status" });
  private readonly approvals = h("div", { class: "approvals" });
  private readonly cards: SourceCards;
  private readonly foot = h("footer", { class: "message-actions" });
  readonly element: HTMLElement;
  private readonly document: LiveDocument;
  private message: Message;
  private cited: number[] | null = null;
  private extras: Extras = NONE;
  private decided = new Map<string, HTMLElement>();

  constructor(message: Message, private readonly actions: MessageActions) {
    this.message = message;
    this.cards = new SourceCards((source) => this.open(source.number));
    const { math, diagrams, callouts } = state.preferences.markdown;
    this.document = new LiveDocument(this.text, { math, diagrams, callouts, numbers: new Set(), legacy: new Map() });
    this.document.onchange = () => this.showCards();
    this.text.addEventListener("click", (event) => {
      const mark = (event.target as Element).closest<HTMLElement>("[data-cite]");
      if (mark) this.open(Number(mark.dataset["cite"]));
    });
    this.element = h(
      "article",
      { class: "message answer", "aria-label": t("chat.reply"), "data-id": message.id },
      this.box.element, this.text, this.waiting, this.approvals, this.remarks, this.cards.element, this.foot,
    );
    this.update(message);
  }

  update(message: Message, extras: Extras = NONE): void {
    const running = message.status === "running";
    this.message = message;
    this.extras = extras;
    this.cited = extras.live || running ? null : message.cited;
    this.element.dataset["status"] = message.status;
    this.element.setAttribute("aria-busy", String(running));
    this.box.update(message, running);
    const legacy = new Map(message.sources.flatMap((source) => (source.citation_id ? [[source.citation_id, source.number] as const] : [])));
    this.document.cite(new Set(message.sources.map((source) => source.number)), legacy);
    const changed = !reused(this.text, [message.content, running]);
    if (changed) this.document.update(message.content, !running);
    this.waiting.hidden = !running || message.content !== "" || message.tool_calls.length > 0 || message.thinking !== "";
    this.showApprovals();
    this.showRemarks();
    this.showCards();
    this.showFoot();
  }

  private showCards(): void {
    this.cards.update(this.message, this.cited ?? this.document.cited());
  }

  private open(wanted: number): void {
    const source = this.message.sources.find((one) => one.number === wanted);
    if (!source) return;
    this.cards.point(wanted);
    this.actions.openSource(source);
  }

  private showApprovals(): void {
    const waiting = this.message.tool_calls.filter((call) => call.status === "awaiting_approval" && call.approval);
    for (const call of waiting) {
      if (this.decided.has(call.id) || !this.message.turn_id) continue;
      const card = approvalCard(this.message.turn_id, call);
      this.decided.set(call.id, card);
      this.approvals.append(card);
    }
    // What was decided, here or in another window, is told by the box.
    for (const [id, card] of this.decided) {
      if (waiting.some((call) => call.id === id)) continue;
      card.remove();
      this.decided.delete(id);
    }
  }

  private showRemarks(): void {
    const { status, content } = this.message;
    const { notices, error } = this.extras;
    if (reused(this.remarks, [status, content === "", notices, error])) return;
    const rows: HTMLElement[] = notices.map((notice) => h("p", { class: "notice" }, told("notice", notice.code, notice.message)));
    if (error) {
      const why = told("failure", error.code, error.message);
      const own = error.code === "provider_refused" && error.message ? h("span", { class: "own-words" }, ` ${error.message}`) : null;
      rows.push(h("p", { class: "problem" }, why, own));
    }
    if (status === "failed" && !error) rows.push(h("p", { class: "problem" }, t("status.failed")));
    if (status === "interrupted" || status === "limit_reached" || status === "awaiting_approval") rows.push(h("p", { class: "notice" }, t(`status.${status}`)));
    if (status === "failed") rows.push(button(t("app.retry"), () => this.actions.regenerate(this.message)));
    this.remarks.replaceChildren(...rows);
  }

  private showFoot(): void {
    const { id, status, usage, content, versions } = this.message;
    const canSave = content !== "" && state.workspaces.some((one) => one.access === "write");
    // A button that somebody is about to press stays where it is.
    if (reused(this.foot, [id, status, usage, content !== "", canSave, versions])) return;
    if (status === "running") return this.foot.replaceChildren();
    const copy = iconButton("copy", t("chat.copy"), async () => {
      copied.textContent = t((await copyText(withSources(this.message))) ? "copied" : "copy.failed");
      setTimeout(() => (copied.textContent = ""), 2000);
    });
    const copied = h("span", { class: "muted", "aria-live": "polite" });
    this.foot.replaceChildren(
      ...[
        versionArrows(this.message, this.actions),
        content ? copy : null,
        canSave ? iconButton("save", t("save.title"), () => this.actions.save(this.message)) : null,
        status === "awaiting_approval" ? null : iconButton("again", t("chat.regenerate"), () => this.actions.regenerate(this.message)),
        copied,
        usage && h("span", { class: "usage", title: usage.partial ? t("usage.partial") : "" }, usageText(usage)),
      ].filter((one) => one !== null),
    );
  }
}

function usageText(usage: NonNullable<Message["usage"]>): string {
  const count = (value: number | null): string => (value === null ? t("usage.unknown") : `${usage.partial ? "≥ " : ""}${number(value)}`);
  if (usage.total_tokens === null && usage.input_tokens === null) return "";
  return t("usage", { total: count(usage.total_tokens), input: count(usage.input_tokens), output: count(usage.output_tokens), rounds: usage.rounds });
}
