/** One foldable box with what the model thought and did, in the order in which it happened (VT-1). */

import type { Activity, Message, ToolCall } from "../contracts";
import { h } from "../dom";
import { number, t, told } from "../i18n";

export class ActivityBox {
  private readonly label = h("span", { class: "activity-label" });
  private readonly list = h("ol", { class: "activity-list" });
  readonly element = h("details", { class: "activity", hidden: true }, h("summary", {}, this.label), this.list);
  private entries: { key: string; element: HTMLElement }[] = [];

  update(message: Message, running: boolean): void {
    const entries = entriesOf(message);
    this.element.hidden = entries.length === 0;
    entries.forEach((entry, index) => {
      const call = entry.type === "tool_call" ? message.tool_calls.find((one) => one.id === entry.id) : undefined;
      const key = entry.type === "thinking" ? entry.text : JSON.stringify(call);
      const old = this.entries[index];
      if (old?.key === key) return;
      if (old && entry.type === "thinking" && old.element.dataset["kind"] === "thinking") {
        const text = old.element.querySelector("p")!.firstChild as Text;
        if (entry.text.startsWith(text.data)) text.appendData(entry.text.slice(text.data.length));
        else text.data = entry.text;
        old.key = key;
        return;
      }
      const element = entry.type === "thinking" ? thought(entry.text) : toolCard(call);
      if (old) old.element.replaceWith(element);
      else this.list.append(element);
      this.entries[index] = { key, element };
    });
    for (const extra of this.entries.splice(entries.length)) extra.element.remove();
    const said = summary(message, entries, running);
    if (this.label.textContent !== said) this.label.textContent = said;
    this.element.toggleAttribute("data-running", running);
  }
}

function entriesOf(message: Message): Activity[] {
  if (message.activity) return message.activity;
  // Of an older message the order is not known, and not guessed.
  const thinking: Activity[] = message.thinking ? [{ type: "thinking", text: message.thinking }] : [];
  return [...thinking, ...message.tool_calls.map((call): Activity => ({ type: "tool_call", id: call.id }))];
}

function summary(message: Message, entries: Activity[], running: boolean): string {
  const last = entries.at(-1);
  if (!running || !last) return t(message.activity ? "activity.title" : "activity.unordered");
  if (last.type === "thinking") return `${t("activity.thinking")}…`;
  const call = message.tool_calls.find((one) => one.id === last.id);
  if (!call) return t("activity.title");
  const subject = subjectOf(call);
  return `${told("tool", call.name, call.name)}${subject ? ` · ${subject}` : ""}`;
}

function thought(text: string): HTMLElement {
  return h("li", { class: "thought", "data-kind": "thinking" }, h("span", { class: "entry-title" }, t("activity.thinking")), h("p", {}, text));
}

/** What the call is about, in a few words. */
function subjectOf(call: ToolCall): string {
  if (typeof call.arguments !== "object" || call.arguments === null) return "";
  const { query, path } = call.arguments as { query?: unknown; path?: unknown };
  return typeof query === "string" ? query : typeof path === "string" ? path : "";
}

function toolCard(call: ToolCall | undefined): HTMLElement {
  if (!call) return h("li", { hidden: true });
  const raw = typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.arguments, null, 2);
  return h(
    "li",
    { class: "tool-card", "data-kind": "tool", "data-status": call.status },
    h(
      "div",
      { class: "tool-line" },
      h("span", { class: "entry-title" }, told("tool", call.name, call.name)),
      h("span", { class: "tool-subject" }, subjectOf(call)),
      call.hits !== null && h("span", { class: "tool-hits" }, t("tool.hits", { n: number(call.hits) })),
      h("span", { class: "badge", "data-status": call.status }, told("tool.status", call.status, call.status)),
    ),
    call.error && h("p", { class: "tool-error" }, call.error),
    raw && raw !== "{}" && h("details", { class: "tool-arguments" }, h("summary", {}, t("tool.arguments")), h("pre", { tabindex: 0 }, raw)),
  );
}
