/** The typed client of the fleet's server: one function per endpoint. */
import { json, queryString, request } from "../http";
import type { FleetHistogram, FleetIncidents, FleetInfo, FleetNode, FleetReport } from "../types";
import type { Selection } from "./address";
import { readAttributes, readCells, type HourAttributes, type HourCells } from "./columns";

export interface IncidentScope {
  since: number | null;
  until: number;
  pick: Selection | null;
  node: string;
  cause: string;
  limit: number;
}

export const api = {
  fleet: (signal?: AbortSignal): Promise<FleetInfo> => json("fleet", signal),

  /** Of the newest hour where `at` is null; of all measures where none is named. */
  async cells(at: number | null, measure: string, known: string, signal?: AbortSignal): Promise<HourCells> {
    const answer = await request(`cells${queryString({ at, measures: measure, known })}`, signal);
    return readCells(await answer.arrayBuffer());
  },

  /** Of the newest hour where `at` is null; of all keys where none is named. */
  async attributes(at: number | null, keys: string[], signal?: AbortSignal): Promise<HourAttributes> {
    const params = new URLSearchParams(keys.map((key) => ["keys", key]));
    if (at !== null) params.set("at", String(at));
    const answer = await request(`attributes?${params}`, signal);
    return readAttributes(await answer.arrayBuffer());
  },

  histogram: (signal?: AbortSignal): Promise<FleetHistogram> => json("histogram", signal),

  incidents({ since, until, pick, node, cause, limit }: IncidentScope, signal?: AbortSignal): Promise<FleetIncidents> {
    const query = queryString({ since, until, node, cause, limit, key: node ? "" : pick?.key });
    // An empty value selects the nodes that do not have the attribute.
    const value = pick && !node ? `&value=${encodeURIComponent(pick.value)}` : "";
    return json(`incidents${query}${value}`, signal);
  },

  node: (name: string, at: number, signal?: AbortSignal): Promise<FleetNode> =>
    json(`node${queryString({ name, at })}`, signal),

  report: (signal?: AbortSignal): Promise<FleetReport> => json("report", signal),
};

/** The recording's page over the bundle of an incident. */
export function incidentAddress(node: string, id: string): string {
  return `./node/${encodeURIComponent(node)}/incident/${encodeURIComponent(id)}/`;
}
