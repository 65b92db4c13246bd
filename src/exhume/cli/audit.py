"""What runs here that should not: units and containers that crash-loop, fail, flap or came switched on with the image,
why, what they cost, and whether anything on this node needs them.

Names narrow it down: a unit (ecs.service, or ecs) or a container (docker:NAME, podman:NAME, cri:NAME, or its name).
Exits with 0 when nothing is in trouble, 1 with findings, 2 when it could not run.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli import exits
from exhume.cli.options import add_setting, value_of, whole_number
from exhume.model.errors import UsageError

if TYPE_CHECKING:
    from exhume.model.audit import Audit, Judged

HOURS = 24


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="Only these units or containers.")
    add_root(parser)
    add_setting(parser, "dir", "-d")
    parser.add_argument("--all", action="store_true", help="Tell of the healthy ones too.")
    parser.add_argument(
        "--hours",
        type=whole_number(1, 24 * 366),
        metavar="HOURS",
        default=HOURS,
        help=f"How far to look back for starts and failures [default: {HOURS}].",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON (versioned, documented) instead of text.")
    add_setting(parser, "color")
    add_setting(parser, "utc")


def add_root(parser: ArgumentParser) -> None:
    """The option of every command that looks at a node's services."""
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        default=Path("/"),
        help="The node's root directory as seen from here; in a container, where it is mounted [default: /].",
    )


def run(options: Namespace) -> int:
    from datetime import UTC

    from exhume.cli.auditing import open_recording, take_audit
    from exhume.cli.speaking import Doing
    from exhume.collect.node_root import NodeRoot

    if not options.root.is_dir():
        raise UsageError(f"--root {options.root}: there is no such directory")
    root = NodeRoot(options.root)
    recording, note = open_recording(root, value_of(options, "dir"), given=bool(options.dir))
    with Doing() as progress:
        found = take_audit(root, hours=float(options.hours), recording=recording, note=note, progress=progress)
    found = _narrowed(found, options.names)
    zone = UTC if value_of(options, "utc") else None
    everything = options.all or bool(options.names)
    if options.json:
        import json

        from exhume.present.audit_view import audit_json

        print(json.dumps(audit_json(found, zone, everything=everything)))
    else:
        from exhume.present.terminal.audit import print_audit
        from exhume.present.terminal.console import console

        print_audit(console(value_of(options, "color")), found, zone, everything=everything)
    troubled = [each for each in found.services if each.troubled]
    _next(troubled, root_words(options.root))
    return exits.NOTHING if troubled else exits.OK


def root_words(root: Path) -> str:
    """`--root DIR` as a next command needs it; nothing for the default."""
    import shlex

    return "" if root == Path("/") else f" --root {shlex.quote(str(root))}"


def _next(troubled: "list[Judged]", root: str) -> None:
    from exhume.cli.speaking import suggest
    from exhume.present.audit_view import plan_command

    worth = [each for each in troubled if each.need.needed == "no"]
    if worth:
        suggest(plan_command(worth[0]) + root)
    elif troubled:
        suggest(f"exhume audit {troubled[0].service.key}{root} --json")


def _narrowed(found: "Audit", names: list[str]) -> "Audit":
    """Only what was asked for by name."""
    if not names:
        return found
    kept: list[Judged] = []
    for name in names:
        mine = [each for each in found.services if _is_called(each, name)]
        if not mine:
            raise UsageError(
                f"no unit or container here is called {name!r}; exhume audit --all lists them, and of sockets, "
                "timers and paths those that failed"
            )
        kept += [each for each in mine if each not in kept]
    kept.sort(key=found.services.index)
    return replace(found, services=tuple(kept), healthy=sum(not each.traits for each in kept))


def _is_called(judged: "Judged", name: str) -> bool:
    service = judged.service
    return name in (service.key, service.name, service.id) or f"{name}.service" == service.id
