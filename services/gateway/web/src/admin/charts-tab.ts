/** A few charts from what is stored anyway: searches, and the gateway's counters. */

import { ask, send } from "../api";
import type { Page } from "../contracts";
import { h, svg } from "../dom";
import { number, t } from "../i18n";
import { samples } from "./metrics-text";
import type { RunSummary } from "./runs-tab";
import { filled, table } from "./table";

const LATEST = 50;
const WIDTH = 600;
const HEIGHT = 140;
const COLUMNS_MIN = 20;

export function chartsTab(): HTMLElement {
  return filled(async () => {
    const [{ items }, metrics] = await Promise.all([ask<Page<RunSummary>>(`/api/retrieval/runs?page=1&page_size=${LATEST}`), send("/metrics").then((response) => response.text())]);
    const latest = [...items].reverse();
    const modes = new Map<string, number>();
    for (const run of items) modes.set(t(`admin.mode.${run.mode}`), (modes.get(t(`admin.mode.${run.mode}`)) ?? 0) + 1);
    const statuses = new Map<string, number>();
    for (const one of samples(metrics).filter(({ name }) => name === "marginalia_http_requests_total")) {
      const status = `${one.labels["status"]?.[0] ?? "?"}xx`;
      statuses.set(status, (statuses.get(status) ?? 0) + one.value);
    }
    return [
      columns(t("charts.took", { n: latest.length }), latest.map((run) => ({ label: run.query, value: run.took_ms })), (value) => t("charts.ms", { n: number(value) })),
      counts(t("charts.modes"), modes),
      counts(t("charts.requests"), statuses),
    ];
  }).element;
}

/** A column for each value; for those who cannot see it, the smallest, the middle and the largest. */
function columns(title: string, data: { label: string; value: number }[], say: (value: number) => string): HTMLElement {
  if (data.length === 0) return h("figure", { class: "chart" }, h("figcaption", {}, title), h("p", { class: "muted" }, t("admin.none")));
  const values = data.map((one) => one.value).sort((one, other) => one - other);
  const max = Math.max(1, values.at(-1)!);
  const step = WIDTH / Math.max(data.length, COLUMNS_MIN);
  const bars = data.map((one, index) => {
    const height = Math.max(1, (one.value / max) * HEIGHT);
    const bar = svg("rect", { x: index * step + step * 0.15, y: HEIGHT - height, width: step * 0.7, height, rx: 1.5 });
    bar.append(svg("title", {}, `${one.label.slice(0, 80)}: ${say(one.value)}`));
    return bar;
  });
  const spread = [values[0]!, values[Math.floor(values.length / 2)]!, values.at(-1)!].map(say).join(" · ");
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, title, h("span", { class: "muted" }, spread)),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${spread}`, preserveAspectRatio: "none" }, ...bars),
  );
}

function counts(title: string, data: Map<string, number>): HTMLElement {
  const max = Math.max(1, ...data.values());
  const rows = [...data].sort(([one], [other]) => one.localeCompare(other)).map(([label, value]) => [label, number(value), h("meter", { max, value, "aria-hidden": "true" })]);
  return h("figure", { class: "chart" }, h("figcaption", {}, title), table(["", "", ""], rows, title));
}
