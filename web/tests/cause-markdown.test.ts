import { describe, expect, it } from "vitest";
import { parseInline, parseMarkdown, type Block } from "../src/markdown";

const PAGES = Object.entries(
  import.meta.glob<string>("../../docs/causes/*.md", { query: "?raw", import: "default", eager: true }),
);

function textsOf(blocks: Block[]): string[] {
  return blocks.flatMap((block) => {
    if (block.kind === "list") return block.items.flatMap(textsOf);
    if (block.kind === "table") return [block.head, ...block.rows].flat();
    return [block.text];
  });
}

describe("Markdown", () => {
  it("has headings, paragraphs over several lines, lists with lists, and tables", () => {
    const text = "# A\n\none\ntwo\n\n- b\n  c\n  - d\n- e\n\n1. f\n2. g\n\n| h | i |\n|---|---|\n| j | k |\n";
    expect(parseMarkdown(text)).toEqual([
      { kind: "heading", level: 1, text: "A" },
      { kind: "paragraph", text: "one two" },
      {
        kind: "list",
        ordered: false,
        items: [
          [
            { kind: "paragraph", text: "b c" },
            { kind: "list", ordered: false, items: [[{ kind: "paragraph", text: "d" }]] },
          ],
          [{ kind: "paragraph", text: "e" }],
        ],
      },
      {
        kind: "list",
        ordered: true,
        items: [[{ kind: "paragraph", text: "f" }], [{ kind: "paragraph", text: "g" }]],
      },
      { kind: "table", head: ["h", "i"], rows: [["j", "k"]] },
    ]);
  });

  it("has code, strong text and links in a line", () => {
    expect(parseInline("a `b` **c** [d](e.md). <https://f>")).toEqual([
      { kind: "text", text: "a " },
      { kind: "code", text: "b" },
      { kind: "text", text: " " },
      { kind: "strong", text: "c" },
      { kind: "text", text: " " },
      { kind: "link", text: "d", target: "e.md" },
      { kind: "text", text: ". " },
      { kind: "link", text: "https://f", target: "https://f" },
    ]);
  });

  it("is of every cause", () => {
    expect(PAGES.length).toBeGreaterThan(20);
  });

  it.each(PAGES)("reads every word of %s", (_name, text) => {
    const words = (of: string): string[] => of.match(/\w+/g) ?? [];
    // Numbers of lists are not text.
    const written = text.replace(/^\s*\d+\. /gm, "");
    expect(words(textsOf(parseMarkdown(text)).join(" "))).toEqual(words(written));
  });

  it.each(PAGES)("leaves no markup of %s in sight", (_name, text) => {
    const parts = textsOf(parseMarkdown(text)).flatMap(parseInline);
    const plain = parts.filter((part) => part.kind === "text" || part.kind === "strong").map((part) => part.text);
    expect(plain.filter((part) => /\*\*|`|\]\(|<http/.test(part))).toEqual([]);
  });
});
