"""Printing events: lines for people, one JSON document for programs."""

from collections.abc import Sequence

from exhume.cli.looking import Look
from exhume.store.read.events import EventView


def print_listing(look: Look, found: Sequence[EventView], key: str, as_json: bool, color: str) -> None:
    """Print events under the key that the command's JSON has for them."""
    if as_json:
        import json

        from exhume.present.events_view import events_json

        print(json.dumps(events_json(found, look.recording.facts.node, key, look.zone)))
        return
    from exhume.present.terminal.console import console
    from exhume.present.terminal.events import print_events

    print_events(console(color), found, look.zone)
