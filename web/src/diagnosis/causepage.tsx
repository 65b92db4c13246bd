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

/** Its text. Links to other causes open these, where that is possible. */
export function CauseText(props: { text: string; linked?: boolean }): JSX.Element {
  return (
    <div class="cause-text">
      <Blocks of={parseMarkdown(props.text)} linked={props.linked ?? true} />
    </div>
  );
}

function Blocks({ of, linked }: { of: Block[]; linked: boolean }): JSX.Element {
  return (
    <>
      {of.map((block, index) => (
        <OneBlock key={index} of={block} linked={linked} />
      ))}
    </>
  );
}

function OneBlock({ of, linked }: { of: Block; linked: boolean }): JSX.Element {
  switch (of.kind) {
    case "heading":
      return of.level === 1 ? (
        <h2>
          <Inlines text={of.text} linked={linked} />
        </h2>
      ) : (
        <h3>{of.text}</h3>
      );
    case "code":
      return <pre>{of.text}</pre>;
    case "paragraph":
      return (
        <p>
          <Inlines text={of.text} linked={linked} />
        </p>
      );
    case "list": {
      const items = of.items.map((item, index) => (
        <li key={index}>
          <Blocks of={item} linked={linked} />
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
                  <Inlines text={cell} linked={linked} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {of.rows.map((row, index) => (
              <tr key={index}>
                {row.map((cell, place) => (
                  <td key={place}>
                    <Inlines text={cell} linked={linked} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      );
  }
}

function Inlines({ text, linked }: { text: string; linked: boolean }): JSX.Element {
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
        if (!cause || !linked) return part.text;
        return (
          <button key={index} type="button" class="link" onClick={() => openCausePage(cause)}>
            {part.text}
          </button>
        );
      })}
    </>
  );
}
