/**
 * Builds the web bundle into `server/static/`: app.js, app.css, icon.svg, licenses.txt, index.html (whose
 * links carry a hash of what they name) and manifest.json (hashes of the sources, so that a stale build is noticed).
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

/** What the bundle contains of others, with their licences. */
function licenses() {
  const { dependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  return Object.keys(dependencies)
    .sort()
    .map((name) => {
      const folder = join(root, "node_modules", name);
      const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
      const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
      return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
    })
    .join(`\n${"-".repeat(78)}\n\n`);
}

function finish() {
  const read = (name) => readFileSync(join(out, name));
  writeFileSync(join(out, "icon.svg"), readFileSync(join(web, "icon.svg")));
  writeFileSync(join(out, "licenses.txt"), licenses());
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
  legalComments: "none",
  logLevel: "warning",
  plugins: [{ name: "finish", setup: (setup) => setup.onEnd(({ errors }) => { if (errors.length === 0) finish(); }) }],
});
if (watching) await build.watch();
else {
  await build.rebuild();
  await build.dispose();
}
