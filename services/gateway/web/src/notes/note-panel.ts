/** A note beside the conversation: rendered or as its source, at the passage that was asked for, and always as it is now. */

import { ask, noteAddress, Problem, said } from "../api";
import { state, workspaceName } from "../app-state";
import { pause, visible } from "../presence";
import type { Note, NoteChanged, Source } from "../contracts";
import { button, h, iconButton } from "../dom";
import { t } from "../i18n";
import { codeBlock, finishCode } from "../markdown/code-block";
import { LiveDocument } from "../markdown/live-document";
import { noteOf } from "./note-link";
import { follow } from "./note-changes";
import { frontMatterLines, linesOfPassage } from "./passage";

const RETRY_MS = 1000;
const RETRY_MS_MAX = 8000;

export interface Shown { workspace: string; path: string; source?: Source; fragment?: string }

export class NotePanel {
  private readonly title = h("h2", { tabindex: -1, dir: "auto" });
  private readonly place = h("p", { class: "note-place" });
  private readonly remark = h("div", { class: "note-remark", role: "status" });
  private readonly body = h("div", { class: "note-body" });
  private readonly toggle = button(t("notes.source"), () => this.switchSource(), { class: "button small" });
  readonly element: HTMLElement;
  private changes: AbortController | null = null;
  private shown: Shown | null = null;
  private asSource = false;
  private note: Note | null = null;
  private reads = 0;
  private answered = 0;
  private retryMs = RETRY_MS;
  private isGone = false;
  private returnTo: HTMLElement | null = null;

  constructor(private readonly open: (shown: Shown) => void, private readonly closed: () => void) {
    this.element = h(
      "aside",
      { class: "note-panel", hidden: true, "aria-label": t("app.notes") },
      h("header", {}, h("div", { class: "note-heading" }, this.title, this.place), this.toggle, iconButton("close", t("app.close"), () => this.close())),
      this.remark,
      this.body,
    );
    this.body.addEventListener("click", (event) => this.clicked(event));
  }

  async show(shown: Shown): Promise<void> {
    if (this.element.hidden) this.returnTo = document.activeElement as HTMLElement | null;
    if (this.shown?.workspace !== shown.workspace) this.listen(shown.workspace);
    this.shown = shown;
    this.element.hidden = false;
    this.remark.replaceChildren();
    this.note = null;
    this.isGone = false;
    this.retryMs = RETRY_MS;
    await this.load();
    this.title.focus({ preventScroll: true });
  }

  close(): void {
    if (this.element.hidden) return;
    this.changes?.abort();
    this.changes = null;
    this.shown = null;
    this.element.hidden = true;
    this.closed();
    this.returnTo?.focus();
  }

  /** What a change tells is only that it is time to read. Of reads that overlap, one begun later has seen as much as those before it. */
  private async load(): Promise<void> {
    const shown = this.shown;
    if (!shown) return;
    const read = ++this.reads;
    this.place.textContent = `${workspaceName(shown.workspace)} › ${shown.path}`;
    if (!this.note) this.title.textContent = shown.path.split("/").at(-1)!;
    const found = await ask<Note>(noteAddress(shown.workspace, shown.path)).then((note) => ({ note }), (error: unknown) => ({ error }));
    if (this.shown !== shown || read < this.answered) return;
    this.answered = read;
    if ("note" in found) return this.found(found.note);
    this.missed(found.error, shown);
    void this.loadLater(read);
  }

  private async found(note: Note): Promise<void> {
    const before = this.note;
    this.retryMs = RETRY_MS;
    if (note.content_hash === before?.content_hash) return this.cameAgain();
    if (before) this.remark.replaceChildren(t("notes.changed"));
    this.isGone = false;
    this.note = note;
    await this.render(note, !before);
  }

  /** What is shown stays. */
  private missed(error: unknown, shown: Shown): void {
    const gone = error instanceof Problem && error.code === "note_not_found";
    if (this.note) {
      if (gone) this.went();
      return;
    }
    this.body.replaceChildren(h("p", { class: "problem" }, gone ? t("notes.deleted") : said(error)));
    if (shown.source?.excerpt) this.body.append(passage(shown.source.excerpt));
  }

  /** A file that is away for a moment is no change to tell of, so that nothing but another read finds it there again. */
  private async loadLater(read: number): Promise<void> {
    if (this.reads !== read || !this.changes) return;
    const { signal } = this.changes;
    await pause(this.retryMs, signal);
    await visible(signal);
    this.retryMs = Math.min(2 * this.retryMs, RETRY_MS_MAX);
    if (this.reads === read) await this.load();
  }

  private went(): void {
    this.isGone = true;
    this.remark.replaceChildren(t("notes.deleted"));
  }

  /** Some programs replace a file by deleting it and writing it anew. */
  private cameAgain(): void {
    if (this.isGone) this.remark.replaceChildren();
    this.isGone = false;
  }

  private async render(note: Note, first: boolean): Promise<void> {
    const { source, fragment } = this.shown!;
    const before = this.body.scrollTop;
    this.title.textContent = note.title;
    this.toggle.textContent = t(this.asSource ? "notes.rendered" : "notes.source");
    const parts: HTMLElement[] = [];
    const stale = source?.locator && source.locator.content_hash !== note.content_hash;
    if (stale && source.excerpt) parts.push(h("p", { class: "notice" }, t("notes.passage.gone")), passage(source.excerpt));
    if (note.tags.length > 0) parts.push(h("p", { class: "note-tags", "aria-label": t("notes.tags") }, ...note.tags.map((tag) => h("span", { class: "tag" }, `#${tag}`))));
    const front = this.asSource ? 0 : frontMatterLines(note.content);
    const place = h("div", { class: "markdown" });
    parts.push(place);
    this.body.replaceChildren(...parts);
    const lines = source?.locator && !stale ? linesOfPassage(note.content, source.locator.start, source.locator.end) : null;
    if (this.asSource) await this.renderSource(place, note, lines);
    else await this.renderMarkdown(place, note.content.split("\n").slice(front).join("\n"));
    const marked = lines && !this.asSource ? mark(place, lines.first - front, lines.after - front) : place.querySelector<HTMLElement>("[data-passage]");
    if (!first) this.body.scrollTop = before;
    else (marked ?? (fragment ? headingOf(place, fragment) : null) ?? this.title).scrollIntoView({ block: "start" });
  }

  private async renderMarkdown(place: HTMLElement, text: string): Promise<void> {
    const { math, diagrams, callouts } = state.preferences.markdown;
    const rendered = new LiveDocument(place, { math, diagrams, callouts, lines: true });
    await new Promise<void>((resolve) => {
      rendered.onchange = resolve;
      rendered.update(text, true);
    });
  }

  private async renderSource(place: HTMLElement, note: Note, lines: { first: number; after: number } | null): Promise<void> {
    const block = codeBlock("markdown", note.content, false);
    place.append(block);
    await finishCode(block);
    if (!lines) return;
    for (const line of [...block.querySelectorAll(".line")].slice(lines.first, lines.after)) line.setAttribute("data-passage", "");
  }

  private switchSource(): void {
    this.asSource = !this.asSource;
    if (this.note) void this.render(this.note, true);
  }

  /** Changes by anybody, other programs included. */
  private listen(workspace: string): void {
    this.changes?.abort();
    this.changes = new AbortController();
    void follow(workspace, this.changes.signal, { listening: () => void this.load(), heard: (change) => this.heard(change) });
  }

  private heard(change: NoteChanged): void {
    if (!this.shown) return;
    if (change.from === this.shown.path) {
      this.isGone = false;
      this.remark.replaceChildren(t("notes.moved", { path: change.path }));
      this.shown = { ...this.shown, path: change.path };
    } else if (change.path !== this.shown.path) return;
    this.retryMs = RETRY_MS;
    void this.load();
  }

  private clicked(event: MouseEvent): void {
    const link = (event.target as Element).closest<HTMLElement>("[data-note]");
    if (!link || !this.shown) return;
    event.preventDefault();
    const { workspace, path } = this.shown;
    const notes = state.workspaces.find((one) => one.id === workspace)?.notes_dir ?? "";
    const folder = path.split("/").slice(0, -1).join("/");
    const found = noteOf(link.dataset["note"]!, state.workspaces, workspace, `${notes}/${folder}`);
    if (found) this.open(found);
  }
}

function passage(text: string): HTMLElement {
  return h("blockquote", { class: "passage", "aria-label": t("notes.passage") }, text);
}

/** Marks the smallest blocks that stand on these lines; the first of them. */
function mark(root: HTMLElement, first: number, after: number): HTMLElement | null {
  const within = [...root.querySelectorAll<HTMLElement>("[data-line]")].filter((block) => Number(block.dataset["line"]) < after && Number(block.dataset["end"]) > first);
  const smallest = within.filter((block) => !within.some((other) => other !== block && block.contains(other)));
  for (const block of smallest) block.dataset["passage"] = "";
  smallest[0]?.setAttribute("aria-label", t("notes.passage"));
  return smallest[0] ?? null;
}

function headingOf(root: HTMLElement, fragment: string): HTMLElement | null {
  return [...root.querySelectorAll<HTMLElement>("h1, h2, h3, h4, h5, h6")].find((heading) => heading.textContent?.trim() === fragment) ?? null;
}
