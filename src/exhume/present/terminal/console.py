"""The terminal, as rich sees it: colours as asked for, none when piped."""

import sys
from typing import IO

from rich.console import Console


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
