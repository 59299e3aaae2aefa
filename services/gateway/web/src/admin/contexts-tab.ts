/** Prepared contexts: what a model would be asked, from which evidence, and proof that it is what was prepared. */

import { ask } from "../api";
import { canonical, sha256 } from "../canonical-json";
import { button, h } from "../dom";
import { moment, number, t, told } from "../i18n";
import { codeBlock, finishCode } from "../markdown/code-block";
import { answersOf } from "./answers";
import { code, filled, paged, table } from "./table";

interface Snapshot {
  id: string;
  query: string;
  question?: string;
  status: string;
  reason: string;
  retrieval_mode: string;
  input_characters: number;
  completion?: { model: string; protocol: string };
  evidence: { label: string; title: string; text: string; start: number; end: number; sha256: string; rank: number; source_url: string | null }[];
  excluded: { chunk_id: string; reason: string }[];
  request_body: unknown;
  request_sha256: string;
  created_at: string;
}

export function contextsTab(id: string): HTMLElement {
  return id ? oneContext(id) : allContexts();
}

function allContexts(): HTMLElement {
  return paged<Snapshot>("/api/rag/contexts", (items) => {
    const rows = items.map((one) => [
      h("a", { href: `#/admin/contexts/${one.id}` }, (one.query ?? one.question ?? one.id).slice(0, 120)),
      told("admin.status", one.status, one.status),
      String(one.evidence.length),
      one.completion?.model ?? "",
      moment(one.created_at),
    ]);
    return table([t("admin.query"), t("admin.status"), t("admin.evidence"), t("admin.model"), t("admin.when")], rows, t("admin.contexts"));
  });
}

function oneContext(id: string): HTMLElement {
  return filled(async () => {
    const one = await ask<Snapshot>(`/api/rag/contexts/${id}`);
    const evidence = one.evidence.map((item) =>
      h(
        "li",
        {},
        h("h3", {}, `${item.label} · ${item.title}`),
        h("p", { class: "muted" }, `${number(item.start)}–${number(item.end)}`, item.source_url && ` · ${item.source_url}`, " · ", code(item.sha256)),
        h("blockquote", { class: "passage" }, item.text),
      ),
    );
    const body = codeBlock("json", JSON.stringify(one.request_body, null, 2), false);
    void finishCode(body);
    return [
      h("p", {}, h("a", { href: "#/admin/contexts" }, t("admin.back"))),
      h("h2", {}, one.query ?? one.question ?? one.id),
      h("p", { class: "muted" }, [told("admin.status", one.status, one.status), one.completion?.model, moment(one.created_at)].filter(Boolean).join(" · ")),
      h("h2", {}, `${t("admin.evidence")} (${one.evidence.length})`),
      h("ol", { class: "results" }, ...evidence),
      h("h2", {}, `${t("admin.excluded")} (${one.excluded.length})`),
      h("ul", { class: "excluded" }, ...one.excluded.map((item) => h("li", {}, code(item.chunk_id, 36), ` ${told("admin.excluded", item.reason, item.reason)}`))),
      h("h2", {}, t("admin.answers")),
      answersOf(one.id, one.status === "prepared"),
      h("h2", {}, t("admin.body")),
      check(one),
      body,
    ];
  }).element;
}

function check(one: Snapshot): HTMLElement {
  const verdict = h("p", { role: "status" });
  const compute = async (): Promise<void> => {
    if (!window.isSecureContext) return verdict.replaceChildren(t("admin.hash.insecure"));
    const found = await sha256(canonical(one.request_body));
    verdict.className = found === one.request_sha256 ? "right" : "problem";
    verdict.textContent = found === one.request_sha256 ? t("admin.hash.right") : t("admin.hash.wrong", { found });
  };
  return h("div", { class: "hash" }, h("p", {}, `${t("admin.hash")}: `, h("code", {}, one.request_sha256)), button(t("admin.hash.check"), compute, { class: "button small" }), verdict);
}
