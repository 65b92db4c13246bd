/** Reads the Markdown of the cause pages into blocks: headings, paragraphs, lists, tables, code. Pure. */

export type Block =
  | { kind: "heading"; level: number; text: string }
  | { kind: "paragraph"; text: string }
  | { kind: "code"; text: string }
  | { kind: "list"; ordered: boolean; items: Block[][] }
  | { kind: "table"; head: string[]; rows: string[][] };

export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "strong"; text: string }
  | { kind: "link"; text: string; target: string };

const ITEM = /^( *)([-*]|\d+\.)( +)(.*)$/;
const BEGINS = /^(#{1,6} |```|\||\s*([-*]|\d+\.) )/;

export function parseMarkdown(text: string): Block[] {
  return blocksOf(text.split("\n"));
}

function blocksOf(lines: string[]): Block[] {
  const blocks: Block[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const heading = /^(#{1,6}) +(.*)$/.exec(line);
    if (line.trim() === "") at++;
    else if (heading) {
      blocks.push({ kind: "heading", level: heading[1].length, text: heading[2] });
      at++;
    } else if (line.startsWith("```")) {
      const end = after(lines, at + 1, (each) => !each.startsWith("```"));
      blocks.push({ kind: "code", text: lines.slice(at + 1, end).join("\n") });
      at = end + 1;
    } else if (line.startsWith("|")) {
      const end = after(lines, at, (each) => each.startsWith("|"));
      const [head, , ...rows] = lines.slice(at, end).map(cellsOf);
      blocks.push({ kind: "table", head, rows });
      at = end;
    } else if (ITEM.test(line)) {
      const [list, end] = listAt(lines, at);
      blocks.push(list);
      at = end;
    } else {
      const end = after(lines, at + 1, (each) => each.trim() !== "" && !BEGINS.test(each));
      blocks.push({ kind: "paragraph", text: joined(lines.slice(at, end)) });
      at = end;
    }
  }
  return blocks;
}

/** A list from a line on, and the line after it. What is indented as far as the text of an item belongs to it. */
function listAt(lines: string[], from: number): [Block, number] {
  const indent = ITEM.exec(lines[from])?.[1].length ?? 0;
  const items: Block[][] = [];
  let ordered = false;
  let at = from;
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (item?.[1].length !== indent) break;
    ordered = item[2] !== "-" && item[2] !== "*";
    const inner = indent + 2;
    const end = after(lines, at + 1, (each, place) => {
      if (each.trim() !== "") return indentOf(each) >= inner;
      const next = lines.slice(place).find((later) => later.trim() !== "");
      return next !== undefined && indentOf(next) >= inner;
    });
    const least = indent + item[2].length + item[3].length;
    const rest = lines.slice(at + 1, end).map((each) => each.slice(Math.min(least, indentOf(each))));
    items.push(blocksOf([item[4], ...rest]));
    at = end;
  }
  return [{ kind: "list", ordered, items }, at];
}

function indentOf(line: string): number {
  return line.length - line.trimStart().length;
}

/** The first line from a place on for which it does not hold. */
function after(lines: string[], from: number, holds: (line: string, place: number) => boolean): number {
  let at = from;
  while (at < lines.length && holds(lines[at], at)) at++;
  return at;
}

function joined(lines: string[]): string {
  return lines.map((each) => each.trim()).join(" ");
}

function cellsOf(line: string): string[] {
  return line
    .replace(/^\|/, "")
    .replace(/\|\s*$/, "")
    .split(/(?<!\\)\|/)
    .map((each) => each.trim().replaceAll("\\|", "|"));
}

export function parseInline(text: string): Inline[] {
  const parts = text.split(/(`[^`]+`|\*\*[^*]+\*\*|\[[^\]]+\]\([^)\s]+\)|<https?:[^>\s]+>)/);
  return parts.filter((part) => part !== "").map(inlineOf);
}

function inlineOf(part: string): Inline {
  if (/^`[^`]+`$/.test(part)) return { kind: "code", text: part.slice(1, -1) };
  if (/^\*\*[^*]+\*\*$/.test(part)) return { kind: "strong", text: part.slice(2, -2) };
  if (/^<https?:[^>\s]+>$/.test(part)) return { kind: "link", text: part.slice(1, -1), target: part.slice(1, -1) };
  const link = /^\[([^\]]+)\]\(([^)\s]+)\)$/.exec(part);
  return link ? { kind: "link", text: link[1], target: link[2] } : { kind: "text", text: part };
}
