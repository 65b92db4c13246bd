import js from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["node_modules", "eslint.config.js", "vite.config.ts", "vitest.config.ts"] },
  js.configs.recommended,
  ...tseslint.configs.recommendedTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      // The house's rules: a file is one idea, errors are not swallowed, promises are not forgotten.
      "max-lines": ["error", 400],
      "max-len": ["error", { code: 120, ignoreUrls: true }],
      "no-console": "error",
      eqeqeq: ["error", "always"],
      "@typescript-eslint/explicit-module-boundary-types": "error",
      "@typescript-eslint/no-explicit-any": "error",
      "@typescript-eslint/switch-exhaustiveness-check": "error",
    },
  },
);
