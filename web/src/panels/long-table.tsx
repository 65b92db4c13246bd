/** A table of thousands of rows, of which those in sight are in the document. Rows have one height. */
import { Component, type ComponentChildren, type JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { visibleRows, type RowRange } from "./visible-rows";

export interface LongColumn<Row, Sort extends string> {
  title: string;
  /** Of the column, for its width. */
  name: string;
  numeric?: boolean;
  /** What a click on the title sorts by. */
  sort?: Sort;
  about?: string;
  cell: (row: Row) => ComponentChildren;
}

const FIRST_PX = 600;

export function LongTable<Row, Sort extends string>(props: {
  caption: string;
  class: string;
  columns: readonly LongColumn<Row, Sort>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  rowHeight: number;
  sorted: { by: Sort; ascending: boolean };
  onSort: (by: Sort) => void;
}): JSX.Element {
  const { columns, rows, rowHeight, sorted } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const [shown, setShown] = useState<RowRange>({ first: 0, end: visibleRows(0, FIRST_PX, rowHeight, rows.length).end });
  const look = (): void => {
    const element = scroller.current;
    if (!element) return;
    const next = visibleRows(element.scrollTop, element.clientHeight || FIRST_PX, rowHeight, rows.length);
    setShown((old) => (old.first === next.first && old.end === next.end ? old : next));
  };
  useEffect(look, [rows, rowHeight]);
  useEffect(() => {
    const observer = new ResizeObserver(look);
    if (scroller.current) observer.observe(scroller.current);
    return () => observer.disconnect();
  }, [rows, rowHeight]);
  // Other rows, or another order: from the start.
  useLayoutEffect(() => scroller.current?.scrollTo(0, 0), [rows]);
  // Set on the element: the Content-Security-Policy allows no inline style.
  useLayoutEffect(() => {
    if (body.current) body.current.style.height = `${rows.length * rowHeight}px`;
  }, [rows, rowHeight]);
  return (
    <div
      class={`long-table ${props.class}`}
      ref={scroller}
      tabIndex={0}
      role="table"
      aria-label={props.caption}
      aria-rowcount={rows.length + 1}
      onScroll={look}
      data-testid="long-table"
    >
      <div role="rowgroup" class="long-head">
        <div role="row" class="long-row" aria-rowindex={1}>
          {columns.map((column) => (
            <div
              key={column.name}
              role="columnheader"
              class={`${column.name} ${column.numeric ? "numeric" : ""}`}
              title={column.about}
              aria-sort={
                column.sort && column.sort === sorted.by ? (sorted.ascending ? "ascending" : "descending") : undefined
              }
            >
              {column.sort ? (
                <button type="button" class="link" onClick={() => column.sort && props.onSort(column.sort)}>
                  {column.title}
                  {column.sort === sorted.by && <i aria-hidden="true">{sorted.ascending ? " ↑" : " ↓"}</i>}
                </button>
              ) : (
                column.title
              )}
            </div>
          ))}
        </div>
      </div>
      <div role="rowgroup" class="long-body" ref={body}>
        {rows.slice(shown.first, shown.end).map((row, i) => (
          <LongRow
            key={props.keyOf(row)}
            row={row}
            place={shown.first + i}
            height={rowHeight}
            columns={columns}
          />
        ))}
      </div>
    </div>
  );
}

interface RowProps<Row, Sort extends string> {
  row: Row;
  place: number;
  height: number;
  columns: readonly LongColumn<Row, Sort>[];
}

/** Rendered once: while others come and go with the scrolling, a row stays as it is. */
class LongRow<Row, Sort extends string> extends Component<RowProps<Row, Sort>> {
  override shouldComponentUpdate(next: RowProps<Row, Sort>): boolean {
    const { row, place, height, columns } = this.props;
    return next.row !== row || next.place !== place || next.height !== height || next.columns !== columns;
  }

  override render({ row, place, height, columns }: RowProps<Row, Sort>): JSX.Element {
    return (
      <div
        role="row"
        class="long-row"
        aria-rowindex={place + 2}
        style={{ transform: `translateY(${place * height}px)` }}
      >
        {columns.map((column) => (
          <div key={column.name} role="cell" class={`${column.name} ${column.numeric ? "numeric" : ""}`}>
            {column.cell(row)}
          </div>
        ))}
      </div>
    );
  }
}
