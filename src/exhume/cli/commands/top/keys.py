"""The keys of `exhume top`: what each does to the view."""

from exhume.present.terminal.top import View
from exhume.present.top_view import Order

QUIT, HELP = ("q", "Q"), ("?", "h")
SORT, GROUPS, FILTER, PAUSE = "s", "g", "/", ("p", " ")
ENTER, ESCAPE, ERASE = ("\n", "\r"), "\x1b", ("\x7f", "\b")


def press(view: View, key: str) -> bool:
    """Apply a key to the view; returns False if the key ends the program."""
    if view.typed is not None:
        _type(view, key)
    elif key in QUIT:
        return False
    elif key in HELP:
        view.help = not view.help
    elif key == SORT:
        orders = list(Order)
        view.order = orders[(orders.index(view.order) + 1) % len(orders)]
    elif key == GROUPS:
        view.containers = not view.containers
    elif key in PAUSE:
        view.paused = not view.paused
    elif key == FILTER:
        view.typed = view.match
    elif key == ESCAPE:
        view.match, view.help = "", False
    return True


def _type(view: View, key: str) -> None:
    """Handle a key while the filter is being typed; the filter takes effect at once."""
    typed = view.typed or ""
    if key in ENTER:
        view.typed = None
        return
    if key == ESCAPE:
        view.typed, view.match = None, ""
        return
    if key in ERASE:
        typed = typed[:-1]
    elif key.isprintable():
        typed += key
    view.typed = view.match = typed
