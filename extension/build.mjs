/**
 * Builds the web bundle into `server/static/`: app.js, app.css, icon.svg, index.html (whose links carry a
 * hash of what they name) and manifest.json (hashes of the sources, so that a stale build is noticed).
 */
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { context } from "esbuild";

const root = import.meta.dirname;
const web = join(root, "web");
const out = join(root, "..", "server", "static");

const hash = (data) => createHash("sha256").update(data).digest("hex");

function sources() {
  const files = readdirSync(web, { recursive: true })
    .filter((name) => /\.(ts|css|html|svg)$/.test(name) && !name.endsWith(".test.ts"))
    .sort();
  return Object.fromEntries(files.map((name) => [name, hash(readFileSync(join(web, name)))]));
}

function finish() {
  const read = (name) => readFileSync(join(out, name));
  writeFileSync(join(out, "icon.svg"), readFileSync(join(web, "icon.svg")));
  const version = (name) => hash(read(name)).slice(0, 12);
  const page = readFileSync(join(web, "index.html"), "utf8")
    .replace("%ICON%", version("icon.svg"))
    .replace("%CSS%", version("app.css"))
    .replace("%JS%", version("app.js"));
  writeFileSync(join(out, "index.html"), page);
  const sizes = Object.fromEntries(
    ["app.js", "app.css"].map((name) => [name, { bytes: read(name).length, gzip: gzipSync(read(name)).length }]),
  );
  writeFileSync(join(out, "manifest.json"), `${JSON.stringify({ sources: sources(), sizes }, null, 2)}\n`);
  console.log(Object.entries(sizes).map(([name, { bytes, gzip }]) => `${name} ${bytes} bytes (${gzip} gzipped)`).join(", "));
}

mkdirSync(out, { recursive: true });
const watching = process.argv.includes("--watch");
const build = await context({
  entryPoints: { app: join(web, "chat.ts"), "app.css": join(web, "styles", "app.css") },
  entryNames: "app",
  outdir: out,
  bundle: true,
  minify: !watching,
  format: "iife",
  target: ["chrome123", "firefox121", "safari17.5"],
  legalComments: "linked",
  logLevel: "warning",
  plugins: [{ name: "finish", setup: (setup) => setup.onEnd(({ errors }) => { if (errors.length === 0) finish(); }) }],
});
if (watching) await build.watch();
else {
  await build.rebuild();
  await build.dispose();
}
