/** The filter: one line of words that acts on everything. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { announce } from "./a11y";
import { useShortcuts } from "./keyboard";
import { FILTER_WORDS, parseQuery, printQuery } from "./query";
import { change, filters, state } from "./state";

export function FilterBar(): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const now = printQuery({ filters: filters.value, cores: state.value.cores });
  const [line, setLine] = useState(now);
  const [complaint, setComplaint] = useState<string | null>(null);
  useEffect(() => {
    setLine(now);
    setComplaint(null);
  }, [now]);
  useShortcuts(() => [
    { keys: ["f"], group: "Page", title: "filter", run: () => field.current?.select() },
  ]);
  const apply = (wanted: string): void => {
    const query = parseQuery(wanted);
    if (typeof query === "string") {
      setComplaint(query);
      return;
    }
    setComplaint(null);
    change({ ...query.filters, cores: query.cores });
    announce(wanted.trim() ? `filtered by ${printQuery(query)}` : "no filter");
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
          list="filter-words"
          placeholder="comm:kubelet cpu:39 stack:lru"
          aria-describedby="filter-complaint"
          aria-invalid={complaint !== null}
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
      <datalist id="filter-words">
        {Object.entries(FILTER_WORDS).map(([word, meaning]) => (
          <option key={word} value={`${line.replace(/\S*$/, "")}${word}:`}>
            {meaning}
          </option>
        ))}
      </datalist>
      {now && (
        <button type="button" class="quiet" aria-label="remove the filter" onClick={() => apply("")}>
          ✕
        </button>
      )}
      <span id="filter-complaint" class="complaint" role="alert">
        {complaint}
      </span>
    </form>
  );
}
