/** Columns over the nodes of an hour: decoders of the server's answers. Pure. */
import { readHeader } from "../binary";
import type { AttributesHeader, CellsHeader } from "../types";

/** The values of an hour: by measure, one for each node; NaN where it sent nothing. */
export interface HourCells {
  at: number;
  roster: string;
  /** Null where the client said that it has them. */
  names: string[] | null;
  silent: number;
  damaged: number;
  values: Map<string, Float32Array>;
}

/** An attribute: for each node 0 (not set) or an index into `values` plus one; null: every node has the only value. */
export interface Column {
  key: string;
  values: string[];
  codes: Uint8Array | Uint16Array | Uint32Array | null;
}

export interface HourAttributes {
  at: number;
  roster: string;
  columns: Map<string, Column>;
  /** All keys, where all were requested. */
  keys: string[];
}

const TRUNCATED = "the answer of the server is truncated";

export function readCells(buffer: ArrayBuffer): HourCells {
  const { header, begin } = readHeader<CellsHeader>(buffer);
  const { at, roster, nodes, names, silent, damaged } = header;
  if (begin + 4 * nodes * header.measures.length > buffer.byteLength) throw new Error(TRUNCATED);
  const values = new Map(
    header.measures.map((measure, i) => [measure, new Float32Array(buffer, begin + 4 * nodes * i, nodes)]),
  );
  return { at, roster, names, silent, damaged, values };
}

export function readAttributes(buffer: ArrayBuffer): HourAttributes {
  const { header, begin } = readHeader<AttributesHeader>(buffer);
  const { nodes } = header;
  const columns = header.columns.map(({ key, values, width, offset }): [string, Column] => {
    if (begin + offset + width * nodes > buffer.byteLength) throw new Error(TRUNCATED);
    return [key, { key, values, codes: width === 0 ? null : codesOf(width, buffer, begin + offset, nodes) }];
  });
  return { at: header.at, roster: header.roster, columns: new Map(columns), keys: header.keys };
}

function codesOf(width: number, buffer: ArrayBuffer, begin: number, nodes: number): Column["codes"] {
  if (width === 1) return new Uint8Array(buffer, begin, nodes);
  return width === 2 ? new Uint16Array(buffer, begin, nodes) : new Uint32Array(buffer, begin, nodes);
}

/** The value of a node; empty where it is not set. */
export function valueOf(column: Column, node: number): string {
  const code = column.codes === null ? 1 : column.codes[node];
  return code > 0 ? column.values[code - 1] : "";
}
