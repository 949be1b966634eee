/** Bundles the unit tests and runs them in Node's own runner. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const root = import.meta.dirname;
const out = mkdtempSync(join(root, "node_modules", ".tests-"));
const tests = readdirSync(join(root, "web"), { recursive: true }).filter((name) => name.endsWith(".test.ts"));
try {
  await build({
    entryPoints: tests.map((name) => join(root, "web", name)),
    outdir: out,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node20",
    sourcemap: "inline",
    logLevel: "warning",
  });
  const built = readdirSync(out).filter((name) => name.endsWith(".test.mjs"));
  const args = ["--enable-source-maps", "--test", ...built.map((name) => join(out, name))];
  process.exitCode = spawnSync(process.execPath, args, { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
