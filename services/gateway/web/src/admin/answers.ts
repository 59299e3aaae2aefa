/** What models have answered to a prepared context, judged strictly; and asking one, once. */

import { ask } from "../api";
import { button, h } from "../dom";
import { moment, number, t, told } from "../i18n";
import { filled } from "./table";

interface Answer {
  id: string;
  outcome: string;
  reason: string | null;
  text: string | null;
  citations: string[];
  provider: string;
  model: string | null;
  took_ms: number;
  response_sha256: string;
  created_at: string;
}

/** `mayAsk`: there is evidence to ask about. */
export function answersOf(context: string, mayAsk: boolean): HTMLElement {
  const address = `/api/rag/contexts/${context}/answers`;
  const place = filled(async () => {
    const { items } = await ask<{ items: Answer[] }>(address);
    if (items.length === 0) return [h("p", { class: "muted" }, t("admin.none"))];
    return [h("ol", { class: "results" }, ...items.map(shown))];
  });
  const state = h("span", { class: "muted", role: "status" });
  const request = async (): Promise<void> => {
    state.textContent = t("chat.waiting");
    try {
      await ask(address, { method: "POST" });
    } finally {
      state.textContent = "";
      await place.again();
    }
  };
  const asking = h("div", { class: "form-row" }, button(t("admin.answer.ask"), request), h("span", { class: "muted" }, t("admin.answer.hint")), state);
  return h("div", {}, place.element, mayAsk && asking);
}

function shown(one: Answer): HTMLElement {
  const facts = [one.model ?? one.provider, t("charts.ms", { n: number(one.took_ms) }), moment(one.created_at)].join(" · ");
  return h(
    "li",
    {},
    h("h3", {}, told("admin.outcome", one.outcome, one.outcome), one.reason && h("span", { class: "muted" }, ` · ${one.reason}`)),
    h("p", { class: "muted" }, facts, one.citations.length > 0 && ` · ${one.citations.join(", ")}`),
    one.text && h("blockquote", { class: "passage", dir: "auto" }, one.text),
  );
}
