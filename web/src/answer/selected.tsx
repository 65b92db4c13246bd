/** The answer to what is selected: verdict, confidence and culprit of its diagnosis; or a step of its story. */
import type { JSX } from "preact";
import { culpritFacts, evidencePlace, isQuoted, ROLES, shownValue } from "../diagnosis/chain";
import { current } from "../diagnosis/current";
import { currentStory, followEvidence, leaveEvidence, walkStory } from "../diagnosis/follow";
import type { StoryStep } from "../diagnosis/story";
import { confidence, datedRange } from "../format";
import { TooLong } from "../panels/diagnosis";
import { unrecordedReason } from "../panels/empty-states";
import { Placeholder } from "../resource";
import { select, state } from "../state";
import type { Diagnosis, Finding } from "../types";
import { CopyButton } from "./copy";

/** Facts about the culprit that have a place here; the panel has all. */
const MOST_FACTS = 4;

export function SelectedAnswer(): JSX.Element {
  const now = current.value;
  const found = now?.read.value ?? null;
  const steps = currentStory();
  const { step, utc } = state.value;
  const reached = step > 0 ? steps.at(step - 1) : undefined;
  return (
    <section class="answer selected-answer" aria-label="answer" data-testid="answer" aria-busy={now?.read.loading}>
      <div class="answer-main" role="group" aria-label="what was found" tabIndex={0}>
        {now?.tooLong && <TooLong />}
        {now && !now.tooLong && (
          <Placeholder of={now.read} what="the evidence" empty={unrecordedReason(now.of) ?? false} />
        )}
        {found && <Headline of={found} short={reached !== undefined} />}
        {now && found && reached && <Step of={reached} />}
        {now && found && !reached && <Summary of={found} when={datedRange(now.of.since, now.of.until, utc)} />}
      </div>
      <div class="answer-tools">
        {steps.length > 0 && <StoryButtons step={step} steps={steps} />}
        {found && <CopyButton />}
        <button type="button" class="quiet" title="the whole recording (Esc)" onClick={() => select(null, null)}>
          all incidents
        </button>
      </div>
    </section>
  );
}

/** Short while a step has the room: cut after one line. */
function Headline({ of, short }: { of: Diagnosis; short: boolean }): JSX.Element {
  return (
    <p class={short ? "headline short" : "headline"} title={of.sentence} data-testid="answer-headline">
      <span class={`badge badge-${of.verdict}`}>{of.verdict}</span> <strong>{of.sentence}</strong>
    </p>
  );
}

function Summary({ of, when }: { of: Diagnosis; when: string }): JSX.Element {
  const first: Finding | undefined = of.findings.at(0);
  if (!first) return <p class="muted">{when}</p>;
  return (
    <dl class="culprit-facts" aria-label="the finding">
      <div>
        <dt>{first.title}</dt>
        <dd class="confidence">
          <meter min={0} max={1} value={first.confidence} aria-label="confidence" />
          {confidence(first.confidence)}
        </dd>
      </div>
      {culpritFacts(first.culprit)
        .slice(0, MOST_FACTS)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd title={value}>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

/** One step: what it says, and the recorded values behind it. */
function Step({ of }: { of: StoryStep }): JSX.Element {
  const { utc } = state.value;
  return (
    <div class={`story-step chain-${of.role}`} data-testid="story-step" data-role={of.role}>
      <p>
        <span class="role">{of.role === "remedy" ? "remedy" : ROLES[of.role]}</span> {of.text}
      </p>
      <ul class="evidence">
        {of.evidence.map((each, index) => (
          <li key={index}>
            <button
              type="button"
              class="link"
              onClick={() => followEvidence({ since: each.since_ms, until: each.until_ms }, each.cpu, each)}
            >
              {each.table}.{each.column}
              {!isQuoted(of, each) && `: ${shownValue(each)}`}
            </button>{" "}
            <span class="muted">{evidencePlace(each, utc)}</span>
          </li>
        ))}
        {of.remedies.map(
          (each) => each.command && (
            <li key={`${each.id} ${each.target}`}>
              <code class="command">{each.command}</code> <span class="muted">{each.cost}</span>
            </li>
          ),
        )}
      </ul>
    </div>
  );
}

function StoryButtons({ step, steps }: { step: number; steps: StoryStep[] }): JSX.Element {
  if (step === 0) {
    return (
      <button type="button" data-testid="story-next" title="walk through the chain (j)" onClick={() => walkStory(1)}>
        walk through ▸
      </button>
    );
  }
  return (
    <div class="story-buttons" role="group" aria-label="steps of the diagnosis">
      <button
        type="button"
        aria-label="previous step"
        title="previous step (k)"
        data-testid="story-previous"
        disabled={step === 1}
        onClick={() => walkStory(-1)}
      >
        ◂
      </button>
      <span data-testid="story-place">
        {step} of {steps.length}
      </span>
      <button
        type="button"
        aria-label="next step"
        title="next step (j)"
        data-testid="story-next"
        disabled={step === steps.length}
        onClick={() => walkStory(1)}
      >
        ▸
      </button>
      <button type="button" class="quiet" title="back to what was diagnosed" onClick={leaveEvidence}>
        end
      </button>
    </div>
  );
}
