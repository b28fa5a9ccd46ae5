import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Plugin } from "vite";

const FILE = "LICENSES.txt";
const HEAD = `The page of clearformer explore (explorer.js, explorer.css, and every file that it exports) contains
code or data of the packages below. Each is under its own licence, which follows.
`;

/** The folder of the package that a module belongs to; nothing for a module of our own. */
function home(module: string): string | undefined {
  const path = module.split("?")[0].replace(/^\0/, "");
  if (!path.includes("node_modules")) return undefined;
  let folder = dirname(path);
  while (!existsSync(join(folder, "package.json")) || !("version" in JSON.parse(readFileSync(join(folder, "package.json"), "utf8")))) {
    if (dirname(folder) === folder) throw new Error(`no package.json above ${path}`);
    folder = dirname(folder);
  }
  return folder;
}

/** The name of a package, and its section: name, version and the whole licence. */
function section(folder: string): [string, string] {
  const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { name: string; version: string; license: string };
  const names = readdirSync(folder).filter((name) => /^(licen[cs]e|copying|notice)(\.(md|txt))?$/i.test(name)).sort();
  if (!names.length) throw new Error(`${about.name} has no licence file`);
  const text = names.map((name) => readFileSync(join(folder, name), "utf8").replaceAll("\r\n", "\n").trim()).join("\n\n");
  // The text stands in a comment of exported files.
  if (/<!--|--!?>/.test(text)) throw new Error(`the licence of ${about.name} would end a comment`);
  const title = `${about.name} ${about.version} (${about.license})`;
  const line = "=".repeat(title.length);
  return [about.name, `${line}\n${title}\n${line}\n\n${text}\n`];
}

/** LICENSES.txt beside the bundle: of each package whose modules are in it, and of each that made data for it. */
export function licenses(modules: string, makers: string[]): Plugin {
  return {
    name: "licenses",
    generateBundle(_, bundle) {
      const folders = new Set(makers.map((name) => join(modules, name)));
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== "chunk") continue;
        for (const module of Object.keys(chunk.modules)) {
          const folder = module.startsWith("\0rolldown/") ? join(modules, "rolldown") : home(module);
          if (folder) folders.add(folder);
        }
        chunk.code = `/*! Licences of the packages in this file: ${FILE} */\n${chunk.code}`;
      }
      const sections = [...folders].map(section).sort(([a], [b]) => (a < b ? -1 : 1));
      this.emitFile({ type: "asset", fileName: FILE, source: [HEAD, ...sections.map(([, text]) => text)].join("\n") });
    },
  };
}
