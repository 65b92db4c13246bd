/** What the page leaves to a terminal, with the command to copy: notes on a moment, and files that were dropped. */
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { announce } from "./a11y";
import { bundleCommand, isLoopback, noteCommand, openCommands } from "./commands";
import { duration, moment } from "./format";
import { useShortcuts } from "./keyboard";
import { pointedAt, recording, state, view } from "./state";

/** A moment to be noted or to be sent to others, or the name of a dropped file. Not part of the address. */
type Task = { note: number } | { share: number } | { file: string };
const task = signal<Task | null>(null);

/** The recorder takes events of the last day. */
const OLDEST_MS = 24 * 3_600_000;
const COPIED_MS = 2000;

/** A note on the start of the selection, else on the moment below the pointer or in the middle of the view. */
export function startNote(): void {
  const at = chosenMoment(pointedAt.peek());
  if (at !== null) task.value = { note: at };
}

/** A link was copied: says so where no other machine reaches it, with the command that packs a file for them. */
export function startShare(): void {
  const at = chosenMoment(null);
  if (at !== null && isLoopback(window.location.hostname)) task.value = { share: at };
}

/** The start of the selection, else this moment, else the middle of the view. */
function chosenMoment(pointed: number | null): number | null {
  const shown = view.peek();
  return shown && Math.round(state.peek().s0 ?? pointed ?? (shown.since + shown.until) / 2);
}

/** A dropped file is answered, and not opened in place of the page. */
export function startDrop(): void {
  const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
  window.addEventListener("dragover", (event) => {
    if (hasFiles(event)) event.preventDefault();
  });
  window.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    const [file] = event.dataTransfer?.files ?? [];
    if (file) task.value = { file: file.name };
  });
}

export function TerminalDialog(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const now = task.value;
  useShortcuts(() => [{ keys: ["m"], group: "Selection", title: "a note on this moment", run: startNote }]);
  useEffect(() => {
    if (now && !dialog.current?.open) dialog.current?.showModal();
    if (!now && dialog.current?.open) dialog.current.close();
  }, [now]);
  const close = (): void => {
    task.value = null;
  };
  return (
    <dialog ref={dialog} class="help terminal" aria-label="in a terminal" data-testid="terminal" onClose={close}>
      <button type="button" class="quiet close" onClick={close} aria-label="close">
        ✕
      </button>
      {now && "note" in now && <Note at={now.note} />}
      {now && "share" in now && <Shared at={now.share} />}
      {now && "file" in now && <Dropped name={now.file} />}
    </dialog>
  );
}

function Note({ at }: { at: number }): JSX.Element {
  const [text, setText] = useState("");
  const known = recording.value;
  const age = (known?.until ?? 0) - at;
  return (
    <>
      <h2>A note on {moment(at, state.value.utc)}</h2>
      {!known?.live ? (
        <p>
          This recording is not being written any more, and a note is put on the timeline by the recorder. While a node
          is recorded, <code>exhume event add</code> does it.
        </p>
      ) : age > OLDEST_MS ? (
        <p>
          This was {duration(age)} ago; the recorder takes notes on the last day. Choose a later moment.
        </p>
      ) : (
        <>
          <label>
            Note{" "}
            <input
              autofocus
              type="text"
              maxLength={1000}
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
            />
          </label>
          <Command text={noteCommand(at, text)} />
          <p class="muted">
            The page only reads. Run this on <strong>{known.node}</strong>, as root or as a member of the group exhume;
            the note is on the timeline within a second. It needs the recorder's socket for events, which{" "}
            <code>exhume install</code> and <code>exhume record --events-socket</code> make.
          </p>
        </>
      )}
    </>
  );
}

function Shared({ at }: { at: number }): JSX.Element {
  return (
    <>
      <h2>The link opens on this machine only</h2>
      <p>
        It leads to <code>{window.location.host}</code>, which others do not reach. A file that they open with{" "}
        <code>exhume serve --dir</code> has the incident nearest to {moment(at, state.value.utc)}, with its diagnosis:
      </p>
      <Command text={bundleCommand(at)} />
      <p class="muted">
        With <code>--dir</code> where the recording is not in the default directory. Secrets in command lines are
        redacted. For a page that others reach, see <code>exhume serve --listen</code>.
      </p>
    </>
  );
}

function Dropped({ name }: { name: string }): JSX.Element {
  return (
    <>
      <h2>
        Open <bdi>{name}</bdi>
      </h2>
      <p>
        The page takes no files: its server would have to unpack what anyone who reaches it sends. In the directory of
        the file:
      </p>
      {openCommands(name).map((each) => (
        <Command key={each} text={each} />
      ))}
      <p class="muted">
        <code>--compare-with</code> shows a bundle or a recording below the one of <code>--dir</code>, on the same axis.
      </p>
    </>
  );
}

function Command({ text }: { text: string }): JSX.Element {
  const [copied, setCopied] = useState(false);
  const line = useRef<HTMLElement>(null);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      announce("the command is copied");
      window.setTimeout(() => setCopied(false), COPIED_MS);
    } catch {
      // No clipboard in an insecure context (plain http, not localhost): it is selected, to be copied by hand.
      if (line.current) window.getSelection()?.selectAllChildren(line.current);
      announce("the command is selected");
    }
  };
  return (
    <p class="command">
      <code ref={line}>{text}</code>
      <button type="button" onClick={() => void copy()}>
        {copied ? "copied" : "copy"}
      </button>
    </p>
  );
}
