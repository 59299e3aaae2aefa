/** Where a message is written. What is written stays until it is accepted, through reloads and refusals. */

import { Problem, said } from "../api";
import { state } from "../app-state";
import type { Candidate, MissingReference, Reference } from "../contracts";
import { button, h, icon, iconButton, isComposing } from "../dom";
import { number, t } from "../i18n";
import { mentionAt } from "./mention-text";
import { MentionMenu } from "./mention-menu";

export type Mode = "chat" | "agent";
export interface Written { message: string; references: Reference[]; mode: Mode }

const DRAFTS = "marginalia.draft.";
/** Which mode was chosen last, in any window. */
const MODE = "marginalia.mode";
/** The service's own limit. A field of that length would cut what is pasted, without a word. */
const CHARACTERS_MAX = 200_000;

export class Composer {
  private readonly area = h("textarea", {
    id: "composer", rows: 1, placeholder: t("chat.placeholder"), "aria-label": t("chat.message"), role: "combobox", "aria-autocomplete": "list",
    "aria-expanded": "false", "aria-controls": "mention-list", "aria-haspopup": "listbox", dir: "auto",
  });
  private readonly chips = h("ul", { class: "chips", "aria-label": t("mention.chips"), hidden: true });
  private readonly problem = h("div", { class: "problem", role: "alert", hidden: true });
  private readonly submit = h("button", { type: "submit", class: "send", "aria-label": t("chat.send"), title: t("chat.send") }, icon("send"));
  private readonly stopButton = h("button", { type: "button", class: "send stop", "aria-label": t("chat.stop"), title: t("chat.stop"), hidden: true, onclick: () => this.stop() }, icon("stop"));
  private readonly mode = h("select", { "aria-label": t("chat.mode"), title: t("chat.mode.agent.hint") }, h("option", { value: "chat" }, t("chat.mode.chat")), h("option", { value: "agent" }, t("chat.mode.agent")));
  private readonly announced = h("span", { class: "visually-hidden", role: "status" });
  private readonly menu: MentionMenu;
  private references: Reference[] = [];
  private sending = false;
  readonly element: HTMLElement;

  constructor(
    private conversation: string | null,
    private readonly workspace: () => string | null,
    private readonly send: (written: Written) => Promise<void>,
    private readonly stop: () => void,
    scope: HTMLElement,
  ) {
    this.menu = new MentionMenu((candidate) => this.choose(candidate), this.area);
    this.element = h(
      "form",
      { class: "composer", onsubmit: (event: Event) => this.submitted(event) },
      this.problem,
      this.menu.element,
      h("div", { class: "composer-box" }, this.chips, this.area, h("div", { class: "composer-bar" }, this.mode, scope, h("span", { class: "spring" }), this.stopButton, this.submit)),
      this.announced,
    );
    this.area.addEventListener("input", () => this.typed());
    this.area.addEventListener("click", () => this.look());
    this.area.addEventListener("blur", () => this.menu.close());
    this.area.addEventListener("keydown", (event) => this.pressed(event));
    this.mode.addEventListener("change", () => {
      localStorage.setItem(MODE, this.mode.value);
      this.keep();
    });
    this.restore();
  }

  focus(): void {
    this.area.focus();
  }

  running(now: boolean): void {
    if (this.stopButton.hidden === !now) return;
    if (!now && document.activeElement === this.stopButton) this.focus(); // what is hidden loses the focus
    this.stopButton.hidden = !now;
    this.announced.textContent = now ? "" : t("chat.done");
  }

  /** What is written from now on belongs to this conversation. */
  began(conversation: string): void {
    sessionStorage.removeItem(this.key);
    this.conversation = conversation;
    this.keep();
  }

  private get key(): string {
    return `${DRAFTS}${state.account?.id ?? ""}.${this.conversation ?? "new"}`;
  }

  /** Puts a text there that was not typed. */
  fill(text: string): void {
    this.area.value = text;
    this.typed();
    this.focus();
  }

  private pressed(event: KeyboardEvent): void {
    if (isComposing(event)) return; // Enter chooses a character
    if (this.menu.key(event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      (this.element as HTMLFormElement).requestSubmit();
    } else if (event.key === "Backspace" && this.area.value === "" && this.references.length > 0) this.remove(this.references.length - 1);
  }

  private typed(): void {
    this.grow();
    this.keep();
    this.look();
  }

  private look(): void {
    const found = mentionAt(this.area.value, this.area.selectionStart);
    if (found) void this.menu.show(this.workspace(), found.query);
    else this.menu.close();
  }

  private choose(candidate: Candidate): void {
    const found = mentionAt(this.area.value, this.area.selectionStart);
    if (!found) return this.menu.close();
    const text = candidate.kind === "workspace" ? candidate.text : "";
    this.area.setRangeText(text, found.start, this.area.selectionStart, "end");
    if (candidate.kind === "note") {
      const { ref, label } = candidate.insert;
      if (!this.references.some((one) => one.ref === ref)) this.references.push({ ref, label });
      this.announced.textContent = t("mention.added", { label });
      this.menu.close();
    }
    this.showChips();
    this.typed();
    this.focus();
  }

  private remove(index: number): void {
    this.references.splice(index, 1);
    this.showChips();
    this.keep();
    this.focus();
  }

  private showChips(missing: MissingReference[] = []): void {
    this.chips.hidden = this.references.length === 0;
    this.chips.replaceChildren(
      ...this.references.map(({ ref, label }, index) =>
        h(
          "li",
          { class: "chip", title: ref, "data-missing": missing.some((one) => one.ref === ref) },
          h("span", { class: "chip-label" }, label),
          iconButton("close", t("mention.remove", { label }), () => this.remove(index)),
        ),
      ),
    );
  }

  private async submitted(event: Event): Promise<void> {
    event.preventDefault();
    const message = this.area.value;
    if (this.sending || message.trim() === "") return;
    const length = [...message].length;
    if (length > CHARACTERS_MAX) return this.say(h("p", {}, t("chat.too_long", { n: number(length), max: number(CHARACTERS_MAX) })));
    this.sending = true;
    this.submit.disabled = true;
    this.say();
    const sent = [...this.references];
    try {
      await this.send({ message, references: sent, mode: this.mode.value as Mode });
      // What was typed and chosen meanwhile belongs to the next one.
      this.area.value = this.area.value.startsWith(message) ? this.area.value.slice(message.length) : this.area.value;
      this.references = this.references.filter((one) => !sent.includes(one));
      this.showChips();
      this.grow();
      this.keep();
    } catch (error) {
      this.refused(error);
    } finally {
      this.sending = false;
      this.submit.disabled = false;
    }
  }

  /** Draft and chips stay as they are (MN-5). */
  private refused(error: unknown): void {
    if (!(error instanceof Problem) || error.code !== "reference_missing") return this.say(h("p", {}, said(error)));
    const missing = error.fields["missing"] as MissingReference[];
    this.showChips(missing);
    this.say(
      ...missing.map((one) =>
        h(
          "p",
          {},
          one.message,
          " ",
          one.moved_to && button(t("mention.use", { path: one.moved_to }), () => this.moved(one), { class: "button small" }),
          button(t("mention.remove", { label: one.label }), () => this.dropped(one), { class: "button small" }),
        ),
      ),
    );
  }

  private moved(one: MissingReference): void {
    this.references = this.references.map((reference) => (reference.ref === one.ref ? { ...reference, ref: one.moved_to! } : reference));
    this.mended();
  }

  private dropped(one: MissingReference): void {
    this.references = this.references.filter((reference) => reference.ref !== one.ref);
    this.mended();
  }

  private mended(): void {
    this.say();
    this.showChips();
    this.keep();
    this.focus();
  }

  private say(...what: HTMLElement[]): void {
    this.problem.hidden = what.length === 0;
    this.problem.replaceChildren(...what);
  }

  private grow(): void {
    this.area.style.height = "auto";
    this.area.style.height = `${this.area.scrollHeight}px`;
  }

  private keep(): void {
    const draft = { text: this.area.value, references: this.references, mode: this.mode.value };
    try {
      if (draft.text || draft.references.length > 0 || draft.mode !== "chat") sessionStorage.setItem(this.key, JSON.stringify(draft));
      else sessionStorage.removeItem(this.key);
    } catch {
      // The browser's store is full or shut: what is written is in the field alone.
    }
  }

  private restore(): void {
    this.mode.value = lastMode();
    const kept = sessionStorage.getItem(this.key);
    if (!kept) return;
    const draft = JSON.parse(kept) as { text: string; references: Reference[]; mode: Mode };
    this.area.value = draft.text;
    this.references = draft.references;
    this.mode.value = draft.mode;
    this.showChips();
    queueMicrotask(() => this.grow());
  }
}

function lastMode(): Mode {
  return localStorage.getItem(MODE) === "agent" ? "agent" : "chat";
}
