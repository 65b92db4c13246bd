"""List units and containers that crash-loop, fail, flap, or were enabled by the image and are not needed: the reason,
their cost, and whether anything on this node needs them.

Names narrow it down: a unit (ecs.service, or ecs) or a container (docker:NAME, podman:NAME, cri:NAME, or its name).
"""

import shlex
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_json, add_setting, option, value_of, whole_number, zone_of
from exhume.cli.terminal import StagedProgress, show, suggest
from exhume.collect.node_root import NodeRoot
from exhume.diagnose.zombie_report import RecordedBoot
from exhume.model.audit import Audit, Judged
from exhume.model.errors import UsageError
from exhume.model.settings import DIR, UTC
from exhume.present.audit_view import audit_json, plan_command
from exhume.present.terminal.audit import print_audit
from exhume.remedy.audit import take_audit
from exhume.store.read.recording import Recording


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="Only these units or containers.")
    root = "The node's root directory; in a container, where the host's is mounted."
    option(parser, "--root DIR", root, type=Path, default=Path("/"))
    add_setting(parser, DIR, "-d")
    option(parser, "--all", "List the healthy ones too.")
    back = "How far to look back for starts and failures."
    option(parser, "--hours HOURS", back, type=whole_number(1, 24 * 366), default=24)
    add_json(parser)
    add_setting(parser, UTC)


def run(options: Namespace) -> int:
    if not options.root.is_dir():
        raise UsageError(f"--root {options.root}: there is no such directory")
    root, zone = NodeRoot(options.root), zone_of(options)
    recording, note = open_recording(root, value_of(options, DIR), given=bool(options.dir))
    with StagedProgress() as progress:
        found = take_audit(root, hours=float(options.hours), recording=recording, note=note, progress=progress)
    found = _narrowed(found, options.names)
    everything = options.all or bool(options.names)
    show(
        options,
        lambda: audit_json(found, zone, everything=everything),
        lambda terminal: print_audit(terminal, found, zone, everything=everything),
    )
    troubled = [each for each in found.services if each.troubled]
    root_args = "" if options.root == Path("/") else f" --root {shlex.quote(str(options.root))}"
    if unneeded := [each for each in troubled if each.need.needed == "no"]:
        suggest(plan_command(unneeded[0]) + root_args)
    elif troubled:
        suggest(f"exhume audit {troubled[0].service.key}{root_args} --json")
    return exit_codes.FINDINGS if troubled else exit_codes.OK


def open_recording(root: NodeRoot, directory: Path, given: bool) -> tuple[Recording | None, str]:
    """Open the recording of this boot, for the costs of services, with a note why there is none where one was `given`.
    Of a node that is seen from elsewhere, only a recording that was given is opened."""
    if not given and not root.is_here:
        return None, ""
    found = RecordedBoot(root.host, directory)
    return found.recording, f"{found.note}: costs are those of live cgroups" if given and found.note else ""


def _narrowed(found: Audit, names: list[str]) -> Audit:
    """Only the services with these names."""
    if not names:
        return found
    kept: list[Judged] = []
    for name in names:
        mine = [
            each
            for each in found.services
            if name in (each.service.key, each.service.name, each.service.id) or f"{name}.service" == each.service.id
        ]
        if not mine:
            raise UsageError(
                f"no unit or container here is called {name!r}; exhume audit --all lists them, and of sockets, "
                "timers and paths those that failed"
            )
        kept += [each for each in mine if each not in kept]
    kept.sort(key=found.services.index)
    return replace(found, services=tuple(kept), healthy=sum(not each.traits for each in kept))
