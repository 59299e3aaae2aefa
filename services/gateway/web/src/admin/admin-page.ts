/** What administrators look after; a tab for each. */

import { h } from "../dom";
import { t } from "../i18n";
import { accountsTab } from "./accounts-tab";
import { chartsTab } from "./charts-tab";
import { contextsTab } from "./contexts-tab";
import { indexTab } from "./index-tab";
import { runsTab } from "./runs-tab";

const TABS = { index: indexTab, runs: runsTab, contexts: contextsTab, accounts: accountsTab, charts: chartsTab } as const;
type TabName = keyof typeof TABS;

export function adminPage(name: string, id: string): HTMLElement {
  const shown: TabName = name in TABS ? (name as TabName) : "index";
  const links = (Object.keys(TABS) as TabName[]).map((one) => h("a", { href: `#/admin/${one}`, "aria-current": one === shown ? "page" : null }, t(`admin.${one}`)));
  return h("section", { class: "page admin" }, h("h1", {}, t("app.admin")), h("nav", { class: "tabs", "aria-label": t("app.admin") }, ...links), TABS[shown](id));
}
