/** Where the time of a diagnosed window went: tables of CPU time and waiting, by state, cause and owner. */
import type { JSX } from "preact";
import { number, percent } from "../format";
import type { Accounting, TimeRow, TimeTable } from "../types";

/** Smaller rows are one row, so that the table still adds up to 100%. */
const LEAST_SHARE = 0.005;
/** Less waiting is not worth a table. */
const LEAST_WAITING_S = 0.1;

export function Times({ of }: { of: Accounting }): JSX.Element {
  const about = of.estimated ? "about " : "";
  return (
    <div class="times" data-testid="times">
      {of.sentence && <p data-testid="lost">{of.sentence}</p>}
      <Breakdowns title={`${number(of.cpu.total_s)} core-seconds`} table={of.cpu} />
      {of.waiting.total_s >= LEAST_WAITING_S && (
        <Breakdowns title={`${about}${number(of.waiting.total_s)} s of waiting`} table={of.waiting} />
      )}
    </div>
  );
}

function Breakdowns({ title, table }: { title: string; table: TimeTable }): JSX.Element {
  const breakdowns: [string, TimeRow[]][] = [
    ["by state", table.by_state],
    ["by cause", table.by_cause],
    ["by owner", table.by_owner],
  ];
  return (
    <section>
      <h4>{title}</h4>
      <div class="times-tables">
        {breakdowns.map(([how, rows]) => rows.length > 0 && <Breakdown key={how} how={how} rows={shownRows(rows)} />)}
      </div>
    </section>
  );
}

function Breakdown({ how, rows }: { how: string; rows: TimeRow[] }): JSX.Element {
  return (
    <table>
      <caption>{how}</caption>
      <tbody>
        {rows.map((row) => (
          <tr key={`${row.kind} ${row.id}`} class={`time-${row.kind}`}>
            <th scope="row" title={row.id}>
              {row.name}
            </th>
            <td>{number(row.seconds)} s</td>
            <td>{percent(row.share)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The rows that are worth a line, and all others as one. */
export function shownRows(rows: TimeRow[]): TimeRow[] {
  const shown = rows.filter((row) => row.share >= LEAST_SHARE);
  const small = rows.filter((row) => row.share < LEAST_SHARE && row.seconds > 0);
  if (small.length < 2) return [...shown, ...small];
  const sum = (value: (row: TimeRow) => number): number => small.reduce((total, row) => total + value(row), 0);
  const rest: TimeRow = {
    kind: "rest",
    id: "less",
    name: `${String(small.length)} more`,
    seconds: sum((row) => row.seconds),
    share: sum((row) => row.share),
  };
  return [...shown, rest];
}
