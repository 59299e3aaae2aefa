/** A change that waits for the user's consent, with its diff to be read (MD-5). What is sent back names exactly what is shown. */

import { ask, Problem, said } from "../api";
import type { ToolCall } from "../contracts";
import { button, h } from "../dom";
import { t } from "../i18n";
import { commonEnds, type DiffLine, diffLines } from "../unified-diff";

export function approvalCard(turnId: string, call: ToolCall): HTMLElement {
  const approval = call.approval!;
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const decide = async (decision: "approve" | "reject"): Promise<void> => {
    for (const one of buttons) one.disabled = true;
    problem.hidden = true;
    try {
      const path = `/api/chat/turns/${turnId}/approvals/${encodeURIComponent(call.id)}`;
      await ask(path, { method: "POST", body: { decision, diff_sha256: approval.diff_sha256 } });
      choice.replaceChildren(h("span", { class: "badge", "data-status": decision }, t(decision === "approve" ? "approval.approved" : "approval.rejected")));
    } catch (error) {
      problem.textContent = error instanceof Problem && ["note_stale", "note_exists"].includes(error.code) ? t("approval.stale") : said(error);
      problem.hidden = false;
      for (const one of buttons) one.disabled = false;
    }
  };
  const buttons = [
    button(t("approval.approve"), () => decide("approve"), { class: "button primary", "data-decision": "approve" }),
    button(t("approval.reject"), () => decide("reject"), { "data-decision": "reject" }),
  ];
  const choice = h("div", { class: "approval-choice" }, ...buttons);
  const title = call.name === "notes.create" ? "approval.create" : "approval.change";
  return h(
    "section",
    { class: "approval", "aria-label": t("approval.title") },
    h("header", {}, h("h3", {}, t("approval.title")), h("p", {}, t(title, { path: approval.path }))),
    diffTable(approval.diff),
    problem,
    choice,
  );
}

export function diffTable(diff: string): HTMLElement {
  const lines = diffLines(diff);
  const rows = lines.map((line, index) => row(line, partner(lines, index)));
  return h("div", { class: "diff", tabindex: 0, role: "group", "aria-label": t("approval.diff") }, h("table", {}, h("tbody", {}, ...rows)));
}

/** The line that stands for this one on the other side, where one line was changed into one other. */
function partner(lines: DiffLine[], index: number): string | null {
  const text = (at: number, kind: string): string | null => {
    const line = lines[at];
    return line && line.kind === kind ? line.text : null;
  };
  const line = lines[index]!;
  if (line.kind === "removed" && text(index - 1, "removed") === null && text(index + 2, "added") === null) return text(index + 1, "added");
  if (line.kind === "added" && text(index + 1, "added") === null && text(index - 2, "removed") === null) return text(index - 1, "removed");
  return null;
}

function row(line: DiffLine, other: string | null): HTMLTableRowElement {
  if (line.kind === "hunk") return h("tr", { class: "diff-hunk" }, h("td", { colspan: 4 }, line.text || "⋯"));
  if (line.kind === "remark") return h("tr", { class: "diff-remark" }, h("td", { colspan: 4 }, line.text));
  const sign = line.kind === "added" ? "+" : line.kind === "removed" ? "−" : "";
  return h(
    "tr",
    { class: `diff-${line.kind}` },
    h("td", { class: "diff-number" }, line.before === null ? "" : String(line.before)),
    h("td", { class: "diff-number" }, line.after === null ? "" : String(line.after)),
    h("td", { class: "diff-sign" }, sign && h("span", { "aria-label": t(line.kind === "added" ? "approval.added" : "approval.removed") }, sign)),
    h("td", { class: "diff-text" }, ...marked(line.text.replace(/\r$/, ""), other)),
  );
}

function marked(text: string, other: string | null): (Node | string)[] {
  if (other === null) return [text];
  const { head, tail } = commonEnds(text, other);
  const middle = text.slice(head, text.length - tail);
  if (middle === "" || head + tail === 0) return [text];
  return [text.slice(0, head), h("mark", {}, middle), text.slice(text.length - tail)];
}
