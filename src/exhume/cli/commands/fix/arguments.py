"""The options of `exhume fix`, read into typed values."""

import shlex
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli.args import add_json, add_setting, value_of
from exhume.cli.terminal import ProgressBar, StagedProgress
from exhume.model.clock import NANOS
from exhume.model.errors import UsageError
from exhume.model.settings import DIR
from exhume.model.times import parse_duration

if TYPE_CHECKING:
    from exhume.model.finding import Finding
    from exhume.remedy.plan import PlanRequest
    from exhume.remedy.services.node import Node

WORK_DIR = Path("/var/lib/exhume-fix")
ZOMBIES = "zombies"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options by which `plan` and `apply` make a plan."""

    target: str | None
    root: Path | None
    work_dir: Path
    directory: Path
    at: str | None
    force_required: bool
    json: bool
    free_zombies: bool = True
    below: Path | None = None
    search: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Namespace) -> "PlanOptions":
        """Read them. Raises UsageError where one does not fit the target."""
        for flag, given in (("--only", options.only), ("--below", options.below), ("--search", options.search)):
            if given and options.target != ZOMBIES:
                raise UsageError(f"{flag} is for the target zombies")
        return cls(
            options.target,
            options.root,
            options.work_dir.absolute(),
            value_of(options, DIR),
            options.at,
            options.force_required,
            options.json,
            not options.no_zombies,
            options.below,
            tuple(path.absolute() for path in options.search),
            tuple(options.only),
        )

    def request(self, node: "Node", progress: StagedProgress) -> "PlanRequest":
        """What remedy.plan makes a plan from."""
        from exhume.cli.boot_recording import open_recording
        from exhume.remedy.plan import PlanRequest
        from exhume.remedy.zombies.situation import Scope, find_cgroup

        below = None if self.below is None else find_cgroup(node.root.host, self.below)
        return PlanRequest(
            target=self.target,
            work_dir=self.work_dir,
            force_required=self.force_required,
            free_zombies=self.free_zombies,
            scope=Scope(below, self.search, self.only),
            find=self._finding,
            recording=lambda: open_recording(node.root, self.directory, given=False),
            progress=progress,
        )

    def _finding(self, cause: str) -> "Finding":
        """Diagnose the recording. Raises UsageError where it does not show the cause."""
        from exhume.cli.commands.diagnose import find_target
        from exhume.cli.recording_args import RecordingView
        from exhume.diagnose.engine import diagnose
        from exhume.model.text import listed
        from exhume.store.read.cached import CachedRecording

        when = Namespace(dir=str(self.directory), at=self.at, last=None, since=None, until=None, utc=False)
        view = RecordingView.open(when)
        view = replace(view, recording=CachedRecording(view.recording))
        target = find_target(view, when)
        if target.window.empty:
            raise UsageError("nothing was recorded at that time; exhume info shows what is recorded")
        with ProgressBar("diagnosing") as bar:
            found = diagnose(view.recording, target.window, at=target.at, progress=bar)
        fitting = [finding for finding in found.findings if finding.cause == cause]
        if not fitting:
            others = listed([finding.cause for finding in found.findings]) or "nothing"
            raise UsageError(
                f"the recording shows no {cause} at that time, but {others}; choose another moment with --at"
            )
        return fitting[0]


@dataclass(frozen=True, slots=True)
class ActionOptions:
    """How actions are carried out: whether a CPU spike is accepted without asking, and how long they may take."""

    accept_cost: bool = False
    step_s: float = 60.0
    stop_wait_s: float = 600.0


def add_work_dir(parser: ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument(
        "--work-dir",
        type=Path,
        metavar="DIR",
        default=WORK_DIR,
        help=f"Directory on a disk for plans, fixes and a temporary swapfile [default: {WORK_DIR}].",
    )


def add_root(parser: ArgumentParser, default: str = "/") -> None:
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help=f"The node's root directory; in a container, where the host's is mounted [default: {default}].",
    )


def add_plan_options(parser: ArgumentParser) -> None:
    """The options that PlanOptions reads."""
    parser.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="A unit, docker:NAME, podman:NAME, cri:NAME, the cause of a finding, or zombies.",
    )
    add_root(parser)
    add_setting(parser, DIR, "-d")
    parser.add_argument("--at", metavar="TIME", help="For the cause of a finding: the incident nearest to this moment.")
    parser.add_argument(
        "--force-required", action="store_true", help="Also stop what others require, and them with it."
    )
    parser.add_argument("--no-zombies", action="store_true", help="Don't free zombies once services are stopped.")
    zombies = parser.add_argument_group("for the target zombies")
    zombies.add_argument(
        "--only", action="append", metavar="STEP", default=[], help="Take only the step of this name; may be repeated."
    )
    zombies.add_argument(
        "--below", type=Path, metavar="CGROUP", help="Look only below this cgroup (its directory, or path in the tree)."
    )
    zombies.add_argument(
        "--search",
        action="append",
        type=Path,
        metavar="DIR",
        default=[],
        help="Directory to search first for files that pin zombies; may be repeated.",
    )
    add_work_dir(parser)


def work_dir_flag(work_dir: Path) -> str:
    """` --work-dir D` as a next command needs it; empty for the default."""
    return "" if work_dir == WORK_DIR else f" --work-dir {shlex.quote(str(work_dir))}"


def seconds(text: str) -> float:
    """Read a duration as seconds."""
    return parse_duration(text) / NANOS


def positive_seconds(text: str) -> float:
    value = seconds(text)
    if value <= 0:
        raise UsageError("--max-time must be greater than 0, for example 60s")
    return value
