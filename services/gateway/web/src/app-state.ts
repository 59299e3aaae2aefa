/** What the whole client knows: who is signed in, what they prefer, which workspaces there are. */

import type { Account, Preferences, Workspace } from "./contracts";
import { t } from "./i18n";

export const state: { account: Account | null; preferences: Preferences; workspaces: Workspace[] } = {
  account: null,
  preferences: { locale: "en", markdown: { math: true, diagrams: true, callouts: true } },
  workspaces: [],
};

export function workspaceName(id: string | null): string {
  const found = state.workspaces.find((one) => one.id === id);
  return found ? found.title : "";
}

/** The title, with a word where its vault is away. */
export function workspaceLabel(workspace: Workspace): string {
  return workspace.available ? workspace.title : t("chat.workspace.away", { title: workspace.title });
}

/** Where somebody's notes most likely are. */
export function largestWorkspace(): Workspace | undefined {
  return [...state.workspaces].sort((one, other) => other.notes - one.notes)[0];
}
