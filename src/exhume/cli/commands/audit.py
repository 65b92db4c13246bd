"""List units and containers that crash-loop, fail, flap, or were enabled by the image and are not needed: the reason,
their cost, and whether anything on this node needs them.

Names narrow it down: a unit (ecs.service, or ecs) or a container (docker:NAME, podman:NAME, cri:NAME, or its name).
"""

import json
import shlex
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_json, add_setting, value_of, whole_number, zone_of
from exhume.cli.boot_recording import open_recording
from exhume.cli.terminal import StagedProgress, suggest
from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Audit, Judged
from exhume.model.errors import UsageError
from exhume.model.settings import COLOR, DIR, UTC
from exhume.present.audit_view import audit_json, plan_command
from exhume.present.terminal.audit import print_audit
from exhume.present.terminal.console import console
from exhume.remedy.audit import take_audit

HOURS = 24


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="Only these units or containers.")
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        default=Path("/"),
        help="The node's root directory; in a container, where the host's is mounted [default: /].",
    )
    add_setting(parser, DIR, "-d")
    parser.add_argument("--all", action="store_true", help="List the healthy ones too.")
    parser.add_argument(
        "--hours",
        type=whole_number(1, 24 * 366),
        metavar="HOURS",
        default=HOURS,
        help=f"How far to look back for starts and failures [default: {HOURS}].",
    )
    add_json(parser)
    add_setting(parser, UTC)


def run(options: Namespace) -> int:
    if not options.root.is_dir():
        raise UsageError(f"--root {options.root}: there is no such directory")
    root = NodeRoot(options.root)
    recording, note = open_recording(root, value_of(options, DIR), given=bool(options.dir))
    with StagedProgress() as progress:
        found = take_audit(root, hours=float(options.hours), recording=recording, note=note, progress=progress)
    found = _narrowed(found, options.names)
    everything = options.all or bool(options.names)
    if options.json:
        print(json.dumps(audit_json(found, zone_of(options), everything=everything)))
    else:
        print_audit(console(value_of(options, COLOR)), found, zone_of(options), everything=everything)
    troubled = [each for each in found.services if each.troubled]
    _suggest(troubled, "" if options.root == Path("/") else f" --root {shlex.quote(str(options.root))}")
    return exit_codes.FINDINGS if troubled else exit_codes.OK


def _suggest(troubled: list[Judged], root_args: str) -> None:
    unneeded = [each for each in troubled if each.need.needed == "no"]
    if unneeded:
        suggest(plan_command(unneeded[0]) + root_args)
    elif troubled:
        suggest(f"exhume audit {troubled[0].service.key}{root_args} --json")


def _narrowed(found: Audit, names: list[str]) -> Audit:
    """Only the services with these names."""
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


def _is_called(judged: Judged, name: str) -> bool:
    service = judged.service
    return name in (service.key, service.name, service.id) or f"{name}.service" == service.id
