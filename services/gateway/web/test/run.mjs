// Bundles the tests, which are TypeScript, and hands them to Node's own test runner.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { build } from "esbuild";

const here = new URL(".", import.meta.url).pathname;
const names = readdirSync(here).filter((name) => name.endsWith(".test.ts"));
await build({
  entryPoints: names.map((name) => here + name),
  outdir: `${here}build`,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  logLevel: "warning",
});
const built = names.map((name) => `${here}build/${name.replace(/\.ts$/, ".mjs")}`);
process.exit(spawnSync(process.execPath, ["--test", ...built], { stdio: "inherit" }).status ?? 1);
