/** Which members may use which workspace: none at first, until an administrator says so here. */

import { ask } from "../api";
import { state } from "../app-state";
import type { Account, Workspace } from "../contracts";
import { h } from "../dom";
import { t } from "../i18n";
import { table } from "./table";

const ACCESS = ["none", "read", "write"] as const;
interface Member { account_id: string; access: "read" | "write" }

/** A row for each member, a column for each workspace. */
export async function membersTable(accounts: Account[]): Promise<HTMLElement> {
  const members = accounts.filter((one) => one.role === "member");
  const may = new Map(await Promise.all(state.workspaces.map(async (one) => [one.id, await membersOf(one)] as const)));
  const rows = members.map((account) => [account.username, ...state.workspaces.map((one) => choice(account, one, may.get(one.id)!))]);
  return table([t("admin.username"), ...state.workspaces.map((one) => one.title)], rows, t("admin.members"));
}

async function membersOf(workspace: Workspace): Promise<Member[]> {
  return (await ask<{ items: Member[] }>(`/api/workspaces/${workspace.id}/members`)).items;
}

function choice(account: Account, workspace: Workspace, members: Member[]): HTMLSelectElement {
  let now: string = members.find((one) => one.account_id === account.id)?.access ?? "none";
  const select = h("select", { "aria-label": `${account.username}, ${workspace.title}` }, ...ACCESS.map((one) => h("option", { value: one, selected: one === now }, t(`admin.members.${one}`))));
  select.addEventListener("change", async () => {
    select.disabled = true;
    try {
      await give(account, workspace, select.value as (typeof ACCESS)[number]);
      now = select.value;
    } finally {
      select.value = now;
      select.disabled = false;
    }
  });
  return select;
}

/** The list is replaced as a whole, so what others have is read anew. */
async function give(account: Account, workspace: Workspace, access: (typeof ACCESS)[number]): Promise<void> {
  const others = (await membersOf(workspace)).filter((one) => one.account_id !== account.id);
  const items = access === "none" ? others : [...others, { account_id: account.id, access }];
  await ask(`/api/workspaces/${workspace.id}/members`, { method: "PUT", body: { items } });
}
