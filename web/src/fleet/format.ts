/** Values of measures as text. */
import { count, duration, number, percent } from "../format";
import type { FleetMeasure } from "../types";

const DAY_S = 86_400;

export function measured(value: number | null, measure: FleetMeasure): string {
  if (value === null || Number.isNaN(value)) return "no data";
  if (value === 0) return "0";
  if (measure.unit === "share") return percent(value);
  if (measure.unit === "s") return value >= 2 * DAY_S ? `${number(value / DAY_S)} d` : duration(value * 1000);
  return Number.isInteger(value) || Math.abs(value) >= 10 ? count(value) : number(value, 2);
}

/** What one value of an hour is. */
export function folded(measure: FleetMeasure): string {
  return measure.fold === "max" ? "greatest of the hour" : "sum of the hour";
}
