"""What the actions of `exhume fix` share: their options, questions to a person, and output."""

import select
import shlex
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.model.clock import NANOS
from exhume.model.errors import UsageError
from exhume.model.times import parse_duration

if TYPE_CHECKING:
    from exhume.model.stop import Stop
    from exhume.remedy.ledger import Ledger

_WORK_DIR = Path("/var/lib/exhume-fix")


def place_words(work_dir: Path) -> str:
    """`--work-dir D` as a next command needs it; nothing for the default."""
    return "" if work_dir == _WORK_DIR else f" --work-dir {shlex.quote(str(work_dir))}"


def add_place(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print JSON (versioned, documented) instead of text.")
    parser.add_argument(
        "--work-dir",
        type=Path,
        metavar="DIR",
        default=_WORK_DIR,
        help="Directory on a disk for plans, the ledger of fixes and a temporary swapfile "
        "[default: /var/lib/exhume-fix].",
    )


def add_root(parser: ArgumentParser, default: str = "/") -> None:
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help=f"The node's root directory; in a container, where the host's is mounted [default: {default}].",
    )


def add_target(parser: ArgumentParser) -> None:
    """What to act upon, and where it is looked for."""
    from exhume.cli.args import add_setting
    from exhume.model.settings import DIR

    parser.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="A unit, docker:NAME, podman:NAME, cri:NAME, the cause of a finding, or zombies.",
    )
    add_root(parser)
    add_setting(parser, DIR, "-d")
    parser.add_argument("--at", metavar="TIME", help="For the cause of a finding: the trouble nearest to this moment.")
    parser.add_argument(
        "--force-required", action="store_true", help="Also stop what others require, and them with it."
    )


def seconds(text: str) -> float:
    """A duration in seconds."""
    return parse_duration(text) / NANOS


def positive_seconds(text: str) -> float:
    value = seconds(text)
    if value <= 0:
        raise UsageError("--max-time has to be above 0")
    return value


def can_ask() -> bool:
    """Whether a person sits there."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str, stop: "Stop") -> bool:
    """Ask a person; without one the answer is no."""
    if not can_ask():
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    # Waiting for an answer must not keep a stop from being heard.
    while not stop.is_set():
        if select.select([sys.stdin], [], [], 0.2)[0]:
            return sys.stdin.readline().strip().lower() in ("y", "yes")
    return False


def tell_unreadable(ledger: "Ledger") -> None:
    """Say which fixes can't be read before going on with the others."""
    for each in ledger.shelf().unreadable:
        print(printable(f"exhume: fix {each.id} is left out: {each.why}"), file=sys.stderr)


def print_json(document: object) -> None:
    import json

    print(json.dumps(document))


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable(line))


def reading_width() -> int | None:
    """As wide as the terminal that is read on; None where it is none, so that nothing is broken for a program."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def printable(line: str) -> str:
    """Names may hold bytes that are no text, and letters that order a terminal about."""
    safe = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
    return safe.encode(errors="backslashreplace").decode()
