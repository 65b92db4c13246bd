import { defineConfig } from "vite";

// The page is built into the Python package, which serves it. Addresses are relative, so that it can live behind a path.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/exhume/present/web/static",
    emptyOutDir: true,
    target: "es2022",
    // Nothing is inlined: the page's security policy allows only files of its own address.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 400,
  },
  // For working on the page: `npx vite` beside `exhume serve`.
  server: { proxy: { "/api": "http://127.0.0.1:7373" } },
});
