import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vite";

const TARGET = "es2022";
const POLICY = "<!--report-policy-->";

// The page is built into the Python package, which serves it. Addresses are relative, so that it can live behind a path.
const page = {
  base: "./",
  plugins: [notices("third-party-notices.txt"), causePages("../docs/causes", "causes")],
  build: {
    outDir: "../src/exhume/present/web/static",
    emptyOutDir: true,
    target: TARGET,
    // The page's Content-Security-Policy allows only files of its own address.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 400,
    rolldownOptions: { input: ["index.html", "fleet.html"] },
  },
  // For development: `npx vite` next to `exhume serve`.
  server: { proxy: { "/api": "http://127.0.0.1:7373" } },
};

// `vite build --mode report`: the template of the reports, one file into which Python writes the data.
const report = {
  base: "./",
  publicDir: false,
  plugins: [singleFile()],
  build: {
    outDir: "../src/exhume/present/web/report",
    emptyOutDir: true,
    target: TARGET,
    cssCodeSplit: false,
    modulePreload: false,
    rolldownOptions: { input: "report.html", output: { codeSplitting: false } },
  },
};

export default defineConfig(({ mode }) => (mode === "report" ? report : page));

/** Puts script and style into the HTML file, with a policy that allows these two by hash and nothing else. */
function singleFile() {
  return {
    name: "single-file",
    enforce: "post",
    generateBundle(_options, bundle) {
      const html = bundle["report.html"];
      if (html?.type !== "asset") throw new Error("report.html was not built");
      const used = [];
      let [script, style] = ["", ""];
      for (const [name, part] of Object.entries(bundle)) {
        if (part.type === "chunk") {
          // Nothing in the script may end its element, or open a comment in it.
          script += part.code.replaceAll("</script", "<\\/script").replaceAll("<!--", "\\x3C!--");
          used.push(...Object.keys(part.modules));
        } else if (name.endsWith(".css")) style += String(part.source);
        if (part !== html) delete bundle[name];
      }
      const policy =
        `default-src 'none'; script-src '${hash(script)}'; style-src '${hash(style)}'; img-src data:; ` +
        "base-uri 'none'; form-action 'none'";
      const text = String(html.source)
        .replace(/\s*<link rel="stylesheet"[^>]*>/, "")
        .replace(/\s*<script type="module"[^>]*><\/script>/, "")
        .replace(POLICY, `<meta http-equiv="Content-Security-Policy" content="${policy}" />`)
        .replace("</head>", () => `  <style>${style}</style>\n  </head>`)
        .replace("</body>", () => `  <script type="module">${script}</script>\n  </body>`);
      html.source = `${text.trimEnd()}\n<!--\n${noticesOf(used).replaceAll("--", "- -")}-->\n`;
    },
  };
}

function hash(text) {
  return `sha256-${createHash("sha256").update(text).digest("base64")}`;
}

/** The licences of the packages whose code is in the bundle, as a file next to it. */
function notices(fileName) {
  return {
    name: "third-party-notices",
    generateBundle(_options, bundle) {
      const used = Object.values(bundle).flatMap((part) =>
        part.type === "chunk" ? Object.keys(part.modules) : part.originalFileNames,
      );
      this.emitFile({ type: "asset", fileName, source: noticesOf(used) });
    },
  };
}

/** The pages of the causes, next to the page: it shows them, and so do reports and the terminal. */
function causePages(from, to) {
  return {
    name: "cause-pages",
    generateBundle() {
      for (const name of readdirSync(from).filter((each) => each.endsWith(".md"))) {
        this.emitFile({ type: "asset", fileName: `${to}/${name}`, source: readFileSync(join(from, name), "utf8") });
      }
    },
  };
}

function noticesOf(modules) {
  const found = new Map();
  for (const id of modules) {
    const match = /^(.*\/node_modules\/((?:@[^/]+\/)?[^/]+))\//.exec(id);
    if (match) found.set(match[2], match[1]);
  }
  const parts = [...found].sort().map(([name, directory]) => {
    const { version, license } = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"));
    return `${name} ${version} (${license})\n\n${readFileSync(join(directory, "LICENSE"), "utf8").trim()}\n`;
  });
  return `This bundle contains code of these packages:\n\n${parts.join(`\n${"=".repeat(80)}\n\n`)}`;
}
