"""Record this node until it is stopped.

Ctrl-C, SIGTERM or a closed terminal seals what is there and tells what was recorded, lost and spent.
"""

from argparse import ArgumentParser, Namespace

from exhume.cli import exits
from exhume.cli.options import add_setting, value_of

SETTINGS = (
    "dir",
    "for",
    "rate",
    "max-size",
    "max-age",
    "cpu-budget",
    "memory-budget",
    "nice",
    "group",
    "keep-secrets",
    "color",
    "utc",
)


def add_options(parser: ArgumentParser) -> None:
    for name in SETTINGS:
        add_setting(parser, name, *(["-d"] if name == "dir" else []))


def run(options: Namespace) -> int:
    values = {name: value_of(options, name) for name in SETTINGS}

    from exhume.cli.recording import record_node

    record_node(values)
    return exits.OK
