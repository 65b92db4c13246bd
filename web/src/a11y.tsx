/** Accessibility: one live region, and tables in place of drawings. */
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";

const announcement = signal("");

/** Announce a message politely. The same message twice in a row is read twice. */
export function announce(message: string): void {
  announcement.value = announcement.peek() === message ? `${message}\u00a0` : message;
}

export function LiveRegion(): JSX.Element {
  return (
    <div class="visually-hidden" role="status" aria-live="polite" data-testid="announcement">
      {announcement}
    </div>
  );
}

export function VisuallyHidden({ children }: { children: ComponentChildren }): JSX.Element {
  return <span class="visually-hidden">{children}</span>;
}

export interface Column<Row> {
  title: string;
  /** Aligned right. */
  numeric?: boolean;
  cell: (row: Row) => ComponentChildren;
}

/** A drawing as a table, folded at first. */
export function TableInstead<Row>(props: {
  summary: string;
  /** Shown above the table. */
  note?: string;
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row) => string;
  /** Shown where there are no rows. */
  empty: string;
  /** Unfolded at first. */
  open?: boolean;
}): JSX.Element {
  return (
    <details class="table-instead" open={props.open}>
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

/** Roles are explicit: on a phone the rows are not displayed as table rows, which would drop the implicit ones. */
export function DataTable<Row>(props: {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row) => string;
}): JSX.Element {
  return (
    <div class="table-scroll">
      <table role="table">
        <caption class="visually-hidden">{props.caption}</caption>
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
