"""The rich console of the commands: colours as requested, none when piped; wrapped lines."""

import os
import sys
from collections.abc import Iterator
from typing import IO

from rich.console import Console
from rich.text import Text


def console(color: str, file: IO[str] | None = None) -> Console:
    """A console; `color` is auto, always or never. It neither highlights nor wraps."""
    target = sys.stdout if file is None else file
    # Without a colour system rich writes no escape sequences at all; `no_color` would leave bold and dim.
    plain = color == "never" or (color == "auto" and os.environ.get("NO_COLOR"))
    return Console(
        file=target,
        force_terminal=True if color == "always" else None,
        color_system=None if plain else "auto",
        highlight=False,
        soft_wrap=True,
        emoji=False,
        markup=False,
    )


def colours_in(terminal: Console) -> bool:
    """Whether colours reach the reader."""
    return terminal.is_terminal and terminal.color_system is not None and not terminal.no_color


def fitted(terminal: Console, line: Text, hang: int | None = None) -> Iterator[Text]:
    """Wrap a line where the terminal is too narrow; what follows is indented by `hang`, or two more than the
    line itself. A line with `no_wrap`, and any line for a pipe, stays whole."""
    if line.no_wrap or not terminal.is_terminal or line.cell_len <= terminal.width:
        yield line
        return
    if hang is None:
        hang = len(line.plain) - len(line.plain.lstrip()) + 2
    hang = min(hang, terminal.width // 2)
    # rich breaks all lines at one width: the first has the room of the indentation too.
    head, *_ = line.wrap(terminal, terminal.width)
    rest = line[len(head.plain) :]
    head.rstrip()
    yield head
    start = len(rest.plain) - len(rest.plain.lstrip())
    for part in rest[start:].wrap(terminal, terminal.width - hang):
        part.rstrip()
        yield Text(" " * hang).append_text(part)
