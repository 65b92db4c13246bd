/** Core numbers as people and kernels write them: `0,3-7`. */

export function printCpus(cpus: readonly number[]): string {
  const sorted = [...new Set(cpus)].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let i = 0; i < sorted.length; ) {
    let end = i;
    while (end + 1 < sorted.length && sorted[end + 1] === sorted[end] + 1) end++;
    if (end === i) parts.push(`${sorted[i]}`);
    else if (end === i + 1) parts.push(`${sorted[i]}`, `${sorted[end]}`);
    else parts.push(`${sorted[i]}-${sorted[end]}`);
    i = end + 1;
  }
  return parts.join(",");
}

/** Null where the text is no list of cores. */
export function parseCpus(text: string): number[] | null {
  const cpus = new Set<number>();
  for (const part of text.split(",")) {
    const match = /^\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?$/.exec(part);
    if (!match) return null;
    const first = Number(match[1]);
    const last = match[2] === undefined ? first : Number(match[2]);
    if (last < first || last - first > 10_000) return null;
    for (let cpu = first; cpu <= last; cpu++) cpus.add(cpu);
  }
  return [...cpus].sort((a, b) => a - b);
}

/** `core 39`, `cores 0-3,7`, or `all cores`. */
export function formatCores(cpus: readonly number[] | null, all?: number): string {
  if (cpus === null || (all !== undefined && cpus.length === all && all > 1)) return "all cores";
  if (cpus.length === 1) return `core ${cpus[0]}`;
  return `cores ${printCpus(cpus)}`;
}
