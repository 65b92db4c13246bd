/** The page of a cause: what it is, how it is recognised and fixed. Served with the page, embedded in reports. */
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { readText } from "../http";
import { parseInline, parseMarkdown, type Block } from "../markdown";
import { Placeholder, useResource } from "../resource";

/** The cause whose page is open. Not part of the address. */
const opened = signal<string | null>(null);

function openCausePage(cause: string): void {
  opened.value = cause;
}

/** Opens the page of a cause. */
export function CauseLink({ cause }: { cause: string }): JSX.Element {
  return (
    <button type="button" class="link" data-testid="cause-link" onClick={() => openCausePage(cause)}>
      what {cause} is, and how to fix it
    </button>
  );
}

/** The dialog with the page of a cause. */
export function CausePageDialog(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const cause = opened.value;
  const read = useResource(cause, (signal) => readText(`./causes/${cause ?? ""}.md`, signal), { keep: false });
  useEffect(() => {
    if (cause !== null && !dialog.current?.open) dialog.current?.showModal();
    if (cause === null && dialog.current?.open) dialog.current.close();
    dialog.current?.scrollTo(0, 0);
  }, [cause]);
  const close = (): void => {
    opened.value = null;
  };
  return (
    <dialog ref={dialog} class="help" aria-label="about the cause" data-testid="cause-page" onClose={close}>
      <button type="button" class="quiet close" onClick={close} aria-label="close">
        ✕
      </button>
      <Placeholder of={read} what="the page of this cause" />
      {read.value !== null && <CauseText text={read.value} />}
    </dialog>
  );
}

/** Its text. Embedded in a finding of a report it has no title of its own, and names of other causes are no links. */
export function CauseText({ text, embedded = false }: { text: string; embedded?: boolean }): JSX.Element {
  return (
    <div class="cause-text">
      <Blocks of={parseMarkdown(text)} embedded={embedded} />
    </div>
  );
}

function Blocks({ of, embedded }: { of: Block[]; embedded: boolean }): JSX.Element {
  return (
    <>
      {of.map((block, index) => (
        <OneBlock key={index} of={block} embedded={embedded} />
      ))}
    </>
  );
}

function OneBlock({ of, embedded }: { of: Block; embedded: boolean }): JSX.Element | null {
  switch (of.kind) {
    case "heading":
      if (embedded) return of.level === 1 ? null : <h4>{of.text}</h4>;
      return of.level === 1 ? (
        <h2>
          <Inlines text={of.text} embedded={embedded} />
        </h2>
      ) : (
        <h3>{of.text}</h3>
      );
    case "code":
      return <pre>{of.text}</pre>;
    case "paragraph":
      return (
        <p>
          <Inlines text={of.text} embedded={embedded} />
        </p>
      );
    case "list": {
      const items = of.items.map((item, index) => (
        <li key={index}>
          <Blocks of={item} embedded={embedded} />
        </li>
      ));
      return of.ordered ? <ol>{items}</ol> : <ul>{items}</ul>;
    }
    case "table":
      return (
        <table>
          <thead>
            <tr>
              {of.head.map((cell, index) => (
                <th key={index} scope="col">
                  <Inlines text={cell} embedded={embedded} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {of.rows.map((row, index) => (
              <tr key={index}>
                {row.map((cell, place) => (
                  <td key={place}>
                    <Inlines text={cell} embedded={embedded} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      );
  }
}

function Inlines({ text, embedded }: { text: string; embedded: boolean }): JSX.Element {
  return (
    <>
      {parseInline(text).map((part, index) => {
        if (part.kind === "code") return <code key={index}>{part.text}</code>;
        if (part.kind === "strong") return <strong key={index}>{part.text}</strong>;
        if (part.kind === "text") return part.text;
        if (/^https?:\/\//.test(part.target)) {
          return (
            <a key={index} href={part.target} target="_blank" rel="noreferrer">
              {part.text}
            </a>
          );
        }
        const cause = /^([a-z-]+)\.md$/.exec(part.target)?.[1];
        if (!cause || embedded) return part.text;
        return (
          <button key={index} type="button" class="link" onClick={() => openCausePage(cause)}>
            {part.text}
          </button>
        );
      })}
    </>
  );
}
