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

/** Past what comes before, by keyboard. No anchors: the fragment of the address has the state of the page. */
export function SkipLinks(): JSX.Element {
  return (
    <nav aria-label="skip">
      {SKIPS.map(([selector, title]) => (
        <button type="button" key={selector} class="skip" onClick={() => focusOn(selector)}>
          {title}
        </button>
      ))}
    </nav>
  );
}

const SKIPS: [string, string][] = [
  ["[data-testid=heatmap]", "skip to the heatmap"],
  [".tabs [aria-selected=true]", "skip to the panels"],
];

function focusOn(selector: string): void {
  document.querySelector<HTMLElement>(selector)?.focus();
}

/** Arrows move the focus among the buttons of a group that is one stop of the Tab key. */
export function moveFocus(event: KeyboardEvent): void {
  const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  if (step === 0) return;
  event.preventDefault();
  const buttons = [...(event.currentTarget as HTMLElement).querySelectorAll("button")];
  buttons[buttons.indexOf(event.target as HTMLButtonElement) + step]?.focus();
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
