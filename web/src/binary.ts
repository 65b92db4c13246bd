/** Decoder of the server's binary answers: u32 length, JSON header padded to a multiple of 4, then plain arrays. */
import type { CoreGrid, CoresHeader, Slices, SlicesHeader, Subsecond, SubsecondHeader } from "./types";

export interface Decoded<Header> {
  header: Header;
  /** Where the first array begins; a multiple of 4. */
  begin: number;
}

export function readHeader<Header>(buffer: ArrayBuffer): Decoded<Header> {
  if (buffer.byteLength < 4) throw new Error("the answer of the server is truncated");
  const length = new DataView(buffer).getUint32(0, true);
  const begin = 4 + length;
  if (begin % 4 !== 0 || begin > buffer.byteLength) throw new Error("the answer of the server is truncated");
  const text = new TextDecoder().decode(new Uint8Array(buffer, 4, length));
  return { header: JSON.parse(text) as Header, begin };
}

export function readCores(buffer: ArrayBuffer): CoreGrid {
  const { header, begin } = readHeader<CoresHeader>(buffer);
  const size = header.cpus.length * header.cells;
  if (begin + 3 * size > buffer.byteLength) throw new Error("the answer of the server is truncated");
  return {
    ...header,
    values: new Uint16Array(buffer, begin, size),
    dominant: new Uint8Array(buffer, begin + 2 * size, size),
  };
}

export function readSubsecond(buffer: ArrayBuffer): Subsecond {
  const { header, begin } = readHeader<SubsecondHeader>(buffer);
  const size = header.columns * header.rows;
  if (begin + 8 * size > buffer.byteLength) throw new Error("the answer of the server is truncated");
  return {
    ...header,
    counts: new Uint32Array(buffer, begin, size),
    kernel: new Uint32Array(buffer, begin + 4 * size, size),
  };
}

export function readSlices(buffer: ArrayBuffer): Slices {
  const { header, begin } = readHeader<SlicesHeader>(buffer);
  const { count } = header;
  if (begin + 21 * count > buffer.byteLength) throw new Error("the answer of the server is truncated");
  return {
    ...header,
    start: new Uint32Array(buffer, begin, count),
    length: new Uint32Array(buffer, begin + 4 * count, count),
    thread: new Int32Array(buffer, begin + 8 * count, count),
    frame: new Int32Array(buffer, begin + 12 * count, count),
    caught: new Uint16Array(buffer, begin + 16 * count, count),
    line: new Uint16Array(buffer, begin + 18 * count, count),
    state: new Uint8Array(buffer, begin + 20 * count, count),
  };
}
