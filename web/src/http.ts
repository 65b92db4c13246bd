/** Requests to the server: each can be aborted, each error has a message. */
import { requestId } from "./progress";

/** The server refused the request; `status` 0: it did not respond. */
export class ServerError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export type Value = string | number | null | undefined;

/** A query string without empty parameters. */
export function queryString(parameters: Record<string, Value>): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") params.set(name, String(value));
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}

export function request(path: string, signal?: AbortSignal): Promise<Response> {
  return get(`./api/${path}`, { Accept: "application/json", "X-Exhume-Request": requestId(path, signal) }, signal);
}

/** A file that is served next to the page. */
export async function readText(address: string, signal?: AbortSignal): Promise<string> {
  return (await get(address, {}, signal)).text();
}

async function get(address: string, headers: Record<string, string>, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(address, { signal, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ServerError(0, "The server does not respond. Is it still running?");
  }
  if (!response.ok) throw new ServerError(response.status, await errorDetail(response));
  return response;
}

async function errorDetail(response: Response): Promise<string> {
  const text = await response.text();
  try {
    const { detail } = JSON.parse(text) as { detail?: unknown };
    if (typeof detail === "string") return detail;
    if (Array.isArray(detail)) return detail.map((each: { msg?: string }) => each.msg ?? "").join("; ");
  } catch {
    // Not JSON: the status is the message.
  }
  if (response.status === 401) return "The token is missing: open the whole address that exhume printed.";
  return `The server answered ${response.status} ${response.statusText}.`;
}

export async function json<Answer>(path: string, signal?: AbortSignal): Promise<Answer> {
  return (await (await request(path, signal)).json()) as Answer;
}
