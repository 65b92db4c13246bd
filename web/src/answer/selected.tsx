/** The answer to what is selected: verdict, confidence and culprit of its diagnosis, in short. */
import type { JSX } from "preact";
import { culpritFacts } from "../diagnosis/chain";
import { current } from "../diagnosis/current";
import { confidence, datedRange } from "../format";
import { TooLong } from "../panels/diagnosis";
import { unrecordedReason } from "../panels/empty-states";
import { Placeholder } from "../resource";
import { select, state } from "../state";
import type { Finding } from "../types";

/** Facts about the culprit that have a place here; the panel has all. */
const MOST_FACTS = 4;

export function SelectedAnswer(): JSX.Element {
  const now = current.value;
  const found = now?.read.value ?? null;
  const first = found?.findings[0];
  return (
    <section class="answer selected-answer" aria-label="answer" data-testid="answer" aria-busy={now?.read.loading}>
      <div class="answer-main">
        {now?.tooLong && <TooLong />}
        {now && !now.tooLong && (
          <Placeholder of={now.read} what="the evidence" empty={unrecordedReason(now.of) ?? false} />
        )}
        {now && found && (
          <>
            <p class="headline">
              <span class={`badge badge-${found.verdict}`}>{found.verdict}</span> <strong>{found.sentence}</strong>
            </p>
            <p class="muted answer-when">{datedRange(now.of.since, now.of.until, state.value.utc)}</p>
            {first && <Facts of={first} />}
          </>
        )}
      </div>
      <div class="answer-tools">
        <button type="button" class="quiet" title="back to the whole recording (Esc)" onClick={() => select(null, null)}>
          all incidents
        </button>
      </div>
    </section>
  );
}

function Facts({ of }: { of: Finding }): JSX.Element {
  return (
    <dl class="culprit-facts" aria-label="culprit">
      <div>
        <dt>{of.title}</dt>
        <dd class="confidence">
          <meter min={0} max={1} value={of.confidence} aria-label="confidence" />
          {confidence(of.confidence)}
        </dd>
      </div>
      {culpritFacts(of.culprit)
        .slice(0, MOST_FACTS)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
