import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { rgb } from "d3-color";
import { interpolateRdBu, interpolateViridis } from "d3-scale-chromatic";
import katex from "katex";
import { defineConfig, type Plugin } from "vite";
import { licenses } from "./licenses";

const here = import.meta.dirname;
const home = join(here, "../src/clearformer/explore/static");

/** What is known while building is computed then: formulas become MathML, colour maps become bytes. */
function prepared(name: string, make: () => unknown): Plugin {
  return {
    name,
    resolveId: (id) => (id === name ? "\0" + name : undefined),
    load: (id) => (id === "\0" + name ? `export default ${JSON.stringify(make())}` : undefined),
  };
}

function formulas(): Record<string, string> {
  const table = JSON.parse(readFileSync(join(here, "src/lessons/formulas.json"), "utf8")) as Record<string, string>;
  const drawn = Object.entries(table).map(([key, tex]) => {
    const html = katex.renderToString(tex, { output: "mathml", displayMode: true, throwOnError: true });
    return [key, html.replace(/<annotation.*?<\/annotation>/s, "")];
  });
  return Object.fromEntries(drawn);
}

/** 256 colours of three bytes each: viridis for weights; for scores blue below nought, red above, pale at nought. */
function ramps(): Record<string, string> {
  const ramp = (colour: (t: number) => string) =>
    Buffer.from(Array.from({ length: 256 }, (_, i) => rgb(colour(i / 255))).flatMap(({ r, g, b }) => [r, g, b])).toString("base64");
  return { viridis: ramp(interpolateViridis), diverging: ramp((t) => interpolateRdBu(1 - (0.06 + 0.88 * t))) };
}

/** The files that make the bundle, in order of their paths: all of web/ but what npm and others put there. */
export function sources(folder: string): string[] {
  const apart = new Set(["node_modules", "openapi.json", "dist"]);
  return readdirSync(folder)
    .filter((name) => !apart.has(name) && !name.startsWith("."))
    .flatMap((name) => {
      const path = join(folder, name);
      return statSync(path).isDirectory() ? sources(path) : [path];
    });
}

const remarks: string[] = [];

/** BUILD.json: a hash over path and content of each source, which test_bundle.py computes again without Node. */
function record(): Plugin {
  let out = home;
  return {
    name: "record",
    buildEnd() {
      if (remarks.length) this.error(remarks.join("\n"));
    },
    // Where Svelte explains its errors: the page names no other host, not even in a message.
    renderChunk: (code) => code.replaceAll("https://svelte.dev/e/", "svelte error "),
    configResolved: (config) => void (out = config.build.outDir),
    writeBundle() {
      const named = sources(here).map((path) => [relative(here, path).split(sep).join("/"), path]);
      named.sort(([a], [b]) => (a < b ? -1 : 1));
      const hash = createHash("sha256");
      for (const [name, path] of named) {
        const text = readFileSync(path);
        hash.update(`${name}\0${text.length}\0`).update(text);
      }
      const build = { sources: hash.digest("hex"), files: named.length };
      writeFileSync(join(out, "BUILD.json"), JSON.stringify(build, null, 2) + "\n");
      for (const name of readdirSync(join(here, "src")).filter((each) => /^strings\.(?!en)\w+\.json$/.test(each)))
        writeFileSync(join(out, name), JSON.stringify(JSON.parse(readFileSync(join(here, "src", name), "utf8"))) + "\n");
      writeFileSync(join(out, "index.html"), readFileSync(join(here, "index.html")));
      // The steps of the course, for the command line and the documentation.
      writeFileSync(join(out, "course.json"), readFileSync(join(here, "src/lessons/course.json")));
    },
  };
}

export default defineConfig({
  plugins: [
    prepared("virtual:formulas", formulas),
    prepared("virtual:ramps", ramps),
    svelte({
      compilerOptions: { css: "external" },
      // What the compiler finds inaccessible or unused is an error, not a remark.
      onwarn(warning) {
        remarks.push(`${warning.filename}:${warning.start?.line} ${warning.message}`);
      },
    }),
    // Their output is in the bundle, not their code: formulas and colours.
    licenses(join(here, "node_modules"), ["katex", "d3-scale-chromatic", "d3-interpolate", "d3-color"]),
    record(),
  ],
  build: {
    outDir: process.env.EXPLORER_OUT ?? home,
    emptyOutDir: true,
    sourcemap: false,
    target: "es2022",
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: false,
    lib: { entry: join(here, "src/main.ts"), formats: ["es"], fileName: () => "explorer.js", cssFileName: "explorer" },
    rollupOptions: { output: { codeSplitting: false, minify: true } },
  },
});
