/** What is indexed and published of each workspace. */

import { ask } from "../api";
import { state, workspaceName } from "../app-state";
import type { IndexStatus } from "../contracts";
import { button, h } from "../dom";
import { moment, number, t } from "../i18n";
import { code, filled, keptFresh, table } from "./table";

interface Publication {
  workspace: string;
  publish: "auto" | "manual";
  text: { id: string; generation: number; created_at: string | null };
  vector: { id: string; generation: number; complete: boolean; embedding_space: string } | null;
  corpus_fingerprint: string;
  documents: number;
  chunks: number;
}

/** How long until the numbers are looked at again: while they change, and while nothing is known to be under way. */
const BUSY_MS = 2_000;
const IDLE_MS = 15_000;

export function indexTab(): HTMLElement {
  let isBusy = true;
  const place = filled(async () => {
    const [{ items }, statuses] = await Promise.all([
      ask<{ items: Publication[] }>("/api/retrieval/publications"),
      Promise.all(state.workspaces.map(async (one) => [one.id, await ask<IndexStatus>(`/api/retrieval/status?workspace=${one.id}`)] as const)),
    ]);
    isBusy = statuses.some(([, status]) => status.pending + status.unembedded > 0);
    const statusOf = new Map(statuses);
    const count = (value: number | undefined): string => number(value ?? 0);
    const progress = table(
      [t("admin.workspace"), t("admin.indexed"), t("admin.pending"), t("admin.unembedded"), t("admin.held")],
      state.workspaces.map((one) => {
        const status = statusOf.get(one.id);
        return [one.title, count(status?.indexed), count(status?.pending), count(status?.unembedded), count(status?.held)];
      }),
      t("admin.index"),
    );
    const published = table(
      [t("admin.workspace"), t("admin.documents"), t("admin.chunks"), t("admin.text"), t("admin.vectors"), t("admin.fingerprint"), t("admin.publish"), ""],
      items.map((one) => [
        workspaceName(one.workspace),
        number(one.documents),
        number(one.chunks),
        h("span", { title: one.text.id }, [number(one.text.generation), one.text.created_at && moment(one.text.created_at)].filter(Boolean).join(" · ")),
        one.vector ? h("span", { title: one.vector.embedding_space }, number(one.vector.generation), !one.vector.complete && ` (${t("admin.vectors.incomplete")})`) : "–",
        code(one.corpus_fingerprint),
        publishing(one, () => place.again()),
        one.publish === "manual" && button(t("admin.publish.now"), async () => {
          await ask("/api/retrieval/publications", { method: "POST", body: { workspace: one.workspace } });
          await place.again();
        }, { class: "button small" }),
      ]),
      t("admin.text"),
    );
    return [progress, h("h2", {}, t("admin.publish")), published];
  });
  return keptFresh(place, () => (isBusy ? BUSY_MS : IDLE_MS));
}

function publishing(one: Publication, again: () => Promise<void>): HTMLElement {
  const select = h("select", { "aria-label": t("admin.publish") }, ...(["auto", "manual"] as const).map((mode) => h("option", { value: mode, selected: mode === one.publish }, t(`admin.publish.${mode}`))));
  select.addEventListener("change", async () => {
    try {
      await ask(`/api/workspaces/${one.workspace}`, { method: "PATCH", body: { publish: select.value } });
    } finally {
      await again();
    }
  });
  return select;
}
