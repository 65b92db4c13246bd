/** What people hear instead of see: one live region, and tables in the place of drawings. */
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";

const spoken = signal("");

/** Say it once, politely. The same sentence twice in a row is said twice. */
export function announce(sentence: string): void {
  spoken.value = spoken.peek() === sentence ? `${sentence}\u00a0` : sentence;
}

export function LiveRegion(): JSX.Element {
  return (
    <div class="unseen" role="status" aria-live="polite" data-testid="spoken">
      {spoken}
    </div>
  );
}

export function Unseen({ children }: { children: ComponentChildren }): JSX.Element {
  return <span class="unseen">{children}</span>;
}

export interface Column<Row> {
  title: string;
  /** Numbers stand right. */
  numeric?: boolean;
  cell: (row: Row) => ComponentChildren;
}

/** A drawing as a table: folded away for those who see it, one key away for those who don't. */
export function TableInstead<Row>(props: {
  summary: string;
  /** What has to be known to read it. */
  note?: string;
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row) => string;
  /** Said where there are no rows. */
  empty: string;
}): JSX.Element {
  return (
    <details class="table-instead">
      <summary>{props.summary}</summary>
      {props.rows.length === 0 ? (
        <p class="muted">{props.empty}</p>
      ) : (
        <>
          {props.note && <p class="muted">{props.note}</p>}
          <DataTable {...props} />
        </>
      )}
    </details>
  );
}

/** Roles are said, though the elements have them: on a phone rows are laid out in another way, and stay rows. */
export function DataTable<Row>(props: {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row) => string;
}): JSX.Element {
  return (
    <div class="table-scroll">
      <table role="table">
        <caption class="unseen">{props.caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {props.columns.map((column) => (
              <th key={column.title} scope="col" role="columnheader" class={column.numeric ? "numeric" : ""}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {props.rows.map((row) => (
            <tr key={props.keyOf(row)} role="row">
              {props.columns.map((column) => (
                <td
                  key={column.title}
                  role="cell"
                  class={column.numeric ? "numeric" : ""}
                  data-title={column.numeric ? column.title : undefined}
                >
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
