/** The diagnosis of what is analysed: read in one place, shown by the answer, the panel and the aside. */
import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { api } from "../api";
import { incidents, incidentsKnown } from "../live";
import { unrecordedReason } from "../panels/empty-states";
import { useResource, type Resource } from "../resource";
import { state, type Analysed } from "../state";
import { endOf } from "../timeline/navigation";
import type { Diagnosis, Incident } from "../types";

/** A longer window is not diagnosed; one has to be selected. */
export const MAX_MS = 3_600_000;
/** Next to another panel only a shorter view is diagnosed: one that is only passed through costs too much. */
const MAX_AUTOMATIC_MS = 600_000;

export interface CurrentDiagnosis {
  of: Analysed;
  read: Resource<Diagnosis>;
  tooLong: boolean;
}

export const current = signal<CurrentDiagnosis | null>(null);

/** Reads the diagnosis of what is analysed into `current`; of nothing while that is null. */
export function useCurrentDiagnosis(analysed: Analysed | null): void {
  const of = analysed && diagnosed(analysed);
  const longest = of?.selected || state.value.tab === "diagnosis" ? MAX_MS : MAX_AUTOMATIC_MS;
  const tooLong = of !== null && of.until - of.since > longest;
  const incident = of && incidentSelected(of);
  // The incidents have to be known first: the diagnosis of one is that of its mark.
  const idle = of === null || tooLong || unrecordedReason(of) !== null || !incidentsKnown.value;
  const read = useResource<Diagnosis>(
    idle ? null : `${of.since} ${of.until} ${incident?.id ?? ""}`,
    (signal) => (incident ? api.diagnosisOf(incident.id, signal) : api.diagnosis(of as Analysed, signal)),
    { delayMs: incident ? 0 : 150 },
  );
  useLayoutEffect(() => {
    current.value = of && { of, read, tooLong };
  }, [of?.since, of?.until, of?.selected, tooLong, read.value, read.loading, read.slow, read.error, read.stopped]);
}

/** What the diagnosis is of: while its evidence is followed, still what it was of before. */
function diagnosed(of: Analysed): Analysed {
  const { d0, d1 } = state.value;
  return d0 === null || d1 === null ? of : { ...of, since: d0, until: d1, selected: true };
}

/** The incident that is selected as a whole: its diagnosis is that of its mark. */
export function incidentSelected(of: Analysed): Incident | null {
  if (!of.selected) return null;
  return incidents.value.find((each) => each.since === of.since && endOf(each) === of.until) ?? null;
}
