/** Stored searches: made here or by programs, each with what it found. */

import { ask } from "../api";
import { field, form, h } from "../dom";
import { moment, number, t } from "../i18n";
import { code, filled, paged, table } from "./table";

export interface RunSummary {
  id: string;
  mode: "keyword" | "keyword_chunks" | "vector" | "hybrid";
  query: string;
  status: "completed" | "degraded" | "failed";
  corpus_fingerprint: string;
  took_ms: number;
  created_at: string;
}
export interface Run extends RunSummary {
  results: { rank: number; score: number; document: { path: string; title: string; directory: string }; chunk: { heading_path: string[]; text: string } | null }[];
}
const MODES = ["hybrid", "vector", "keyword_chunks", "keyword"] as const;

export function runsTab(id: string): HTMLElement {
  return id ? oneRun(id) : h("div", {}, search(), allRuns());
}

function search(): HTMLElement {
  const query = h("input", { required: true, maxlength: 10_000 });
  const mode = h("select", {}, ...MODES.map((one) => h("option", { value: one }, t(`admin.mode.${one}`))));
  const run = async (): Promise<void> => {
    const made = await ask<Run>("/api/retrieval/runs", { method: "POST", body: { mode: mode.value, query: query.value } });
    location.hash = `#/admin/runs/${made.id}`;
  };
  return form({ class: "form-row" }, run, field(t("admin.query"), query), field(t("admin.mode"), mode), h("button", { class: "button primary" }, t("admin.search")));
}

function allRuns(): HTMLElement {
  return paged<RunSummary>("/api/retrieval/runs", (items) => {
    const rows = items.map((run) => [h("a", { href: `#/admin/runs/${run.id}` }, run.query.slice(0, 120)), t(`admin.mode.${run.mode}`), t(`admin.status.${run.status}`), t("charts.ms", { n: number(run.took_ms) }), moment(run.created_at)]);
    return table([t("admin.query"), t("admin.mode"), t("admin.status"), t("admin.took"), t("admin.when")], rows, t("admin.runs"));
  });
}

function oneRun(id: string): HTMLElement {
  return filled(async () => {
    const run = await ask<Run>(`/api/retrieval/runs/${id}`);
    const results = run.results.map((one) =>
      h(
        "li",
        {},
        h("h3", {}, `${one.rank}. ${one.document.title}`),
        h("p", { class: "muted" }, [`${one.document.directory}/${one.document.path}`, ...(one.chunk?.heading_path ?? [])].join(" › "), ` · ${one.score.toFixed(4)}`),
        one.chunk && h("blockquote", { class: "passage" }, one.chunk.text),
      ),
    );
    return [
      h("p", {}, h("a", { href: "#/admin/runs" }, t("admin.back"))),
      h("h2", {}, run.query),
      h("p", { class: "muted" }, [t(`admin.mode.${run.mode}`), t(`admin.status.${run.status}`), t("charts.ms", { n: number(run.took_ms) }), moment(run.created_at)].join(" · "), " · ", code(run.corpus_fingerprint)),
      run.mode !== "keyword" && run.status === "completed" && prepare(run),
      h("ol", { class: "results", "aria-label": t("admin.results") }, ...results),
    ];
  }).element;
}

function prepare(run: Run): HTMLElement {
  const known = h("datalist", { id: "models" });
  const model = h("input", { required: true, value: localStorage.getItem("marginalia.model") ?? "", maxlength: 128, list: "models" });
  void ask<{ items: { models: string[] }[] }>("/api/providers").then(({ items }) => {
    const models = items.flatMap((provider) => provider.models);
    known.append(...models.map((one) => h("option", { value: one })));
    model.value ||= models[0] ?? "";
  });
  const make = async (): Promise<void> => {
    localStorage.setItem("marginalia.model", model.value);
    const made = await ask<{ id: string }>("/api/rag/contexts", { method: "POST", body: { retrieval_run_id: run.id, completion: { model: model.value } } });
    location.hash = `#/admin/contexts/${made.id}`;
  };
  return form({ class: "form-row" }, make, field(t("admin.model"), model), known, h("button", { class: "button" }, t("admin.prepare")));
}
