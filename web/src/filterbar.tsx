/** The filter: one line that applies to timeline and panels. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { announce } from "./a11y";
import { useShortcuts } from "./keyboard";
import { FILTER_KEYS, parseQuery, printQuery } from "./query";
import { change, filters, state } from "./state";

export function FilterBar(): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const now = printQuery({ filters: filters.value, cores: state.value.cores });
  const [line, setLine] = useState(now);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    setLine(now);
    setError(null);
  }, [now]);
  useShortcuts(() => [
    { keys: ["f"], group: "Page", title: "filter", run: () => field.current?.select() },
  ]);
  const apply = (text: string): void => {
    const query = parseQuery(text);
    if (typeof query === "string") {
      setError(query);
      return;
    }
    setError(null);
    change({ ...query.filters, cores: query.cores });
    announce(text.trim() ? `filtered by ${printQuery(query)}` : "no filter");
  };
  return (
    <form
      class={`filter ${now ? "filtering" : ""}`}
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        apply(line);
      }}
    >
      <label>
        <span>filter</span>
        <input
          ref={field}
          type="text"
          value={line}
          spellcheck={false}
          autocomplete="off"
          list="filter-keys"
          placeholder="comm:kubelet cpu:39 stack:lru"
          title="filter (f)"
          aria-describedby="filter-error"
          aria-invalid={error !== null}
          onInput={(event) => setLine(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape") {
              setLine(now);
              field.current?.blur();
            }
          }}
          onBlur={() => line !== now && apply(line)}
        />
      </label>
      <datalist id="filter-keys">
        {Object.entries(FILTER_KEYS).map(([key, meaning]) => (
          <option key={key} value={`${line.replace(/\S*$/, "")}${key}:`}>
            {meaning}
          </option>
        ))}
      </datalist>
      {now && (
        <button type="button" class="quiet" aria-label="remove the filter" onClick={() => apply("")}>
          ✕
        </button>
      )}
      <span id="filter-error" class="field-error" role="alert">
        {error}
      </span>
    </form>
  );
}
