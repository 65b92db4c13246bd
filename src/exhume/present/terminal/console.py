"""The terminal, as rich sees it: colours as asked for, none when piped."""

import sys
from collections.abc import Iterator
from typing import IO

from rich.console import Console
from rich.text import Text


def console(color: str, file: IO[str] | None = None) -> Console:
    """`color` is auto, always or never. Nothing is highlighted or wrapped by itself."""
    target = sys.stdout if file is None else file
    return Console(
        file=target,
        force_terminal=True if color == "always" else None,
        no_color=True if color == "never" else None,
        highlight=False,
        soft_wrap=True,
        emoji=False,
        markup=False,
    )


def colours_in(terminal: Console) -> bool:
    """Whether colours reach the reader."""
    return terminal.is_terminal and terminal.color_system is not None and not terminal.no_color


def fitted(terminal: Console, line: Text) -> Iterator[Text]:
    """A line of words, broken where a terminal is too narrow for it; what follows hangs below its beginning. One that
    says `no_wrap`, and any line for a pipe, stays whole."""
    if line.no_wrap or not terminal.is_terminal or line.cell_len <= terminal.width:
        yield line
        return
    hang = min(len(line.plain) - len(line.plain.lstrip()) + 2, terminal.width // 2)
    first, *rest = line.wrap(terminal, terminal.width - hang)
    first.rstrip()
    yield first
    for part in rest:
        part.rstrip()
        yield Text(" " * hang).append_text(part)
