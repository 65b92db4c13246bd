"""The entry point: finds and runs the command, and turns errors into one sentence and an exit code."""

import errno
import gc
import importlib
import io
import os
import sys
from argparse import SUPPRESS
from collections.abc import Sequence
from contextlib import suppress
from keyword import iskeyword
from types import ModuleType
from typing import NamedTuple

from exhume import __version__
from exhume.cli import exit_codes
from exhume.cli.args import Parser, log_target
from exhume.model.errors import ExhumeError, NoData, os_reason
from exhume.model.isolation import isolate
from exhume.model.settings import SETTINGS

# numpy's linear algebra is not used; its threads would cost CPU and memory at every start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Startup allocates about 100,000 objects that live until exit; the default threshold would scan them repeatedly.
gc.set_threshold(50_000)

# Errors of writing to stdout: disk full, quota, file size limit, I/O error, closed descriptor.
OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class Command(NamedTuple):
    """A command as `exhume --help` lists it. Its module is imported only to run it or to print its own help."""

    summary: str
    examples: tuple[str, ...]


COMMANDS = {
    "record": Command(
        "Record this node until it is stopped.",
        ("exhume record", "exhume record --for 10m --dir /tmp/recording", "exhume record --rate 49 --max-size 1G"),
    ),
    "doctor": Command(
        "Check this node in seconds, without a recording.", ("exhume doctor", "exhume doctor --for 30s --json")
    ),
    "diagnose": Command(
        "Find what starved this node: cause, evidence, remedy.",
        ("exhume diagnose", "exhume diagnose --at 03:14:07", "exhume diagnose --last 10m --html incident.html"),
    ),
    "top": Command(
        "Show this node live, from what its recorder writes.",
        ("exhume top", "exhume top --sort wait --filter kubelet", "exhume top --json"),
    ),
    "info": Command(
        "Show a recording's time range, size, losses and overhead.",
        ("exhume info", "exhume info --cost", "exhume info --json"),
    ),
    "health": Command(
        "Check that the recorder is working, for probes.",
        ("exhume health", "exhume health --json", "exhume health --allow-losses --late-after 30s"),
    ),
    "incidents": Command(
        "List the incidents that the recorder marked.",
        ("exhume incidents", "exhume incidents --last 1h", "exhume incidents --no-findings --json"),
    ),
    "cores": Command(
        "Draw cores x seconds in the terminal.",
        ("exhume cores", "exhume cores --since 03:10 --until 03:20", "exhume cores --last 5m --measure softirq"),
    ),
    "flame": Command(
        "Write a flame graph to SVG, HTML or other formats.",
        (
            "exhume flame --last 1m -o flame.html",
            "exhume flame --since 03:14:02 --until 03:14:09 --cpu 39 -o core39.svg",
            "exhume flame --since 03:14 --baseline 03:10..03:14 -o difference.html",
        ),
    ),
    "events": Command(
        "List the kernel log and other events.",
        ("exhume events --last 1h", "exhume events --kind oom --kind hung-task", "exhume events --since 03:00 --json"),
    ),
    "export": Command(
        "Write profiles, tables and metrics in formats of other tools.",
        (
            "exhume export pprof --last 5m -o node.pb.gz",
            "exhume export perfetto --since 03:14:00 --until 03:14:20 -o trace.json",
            "exhume export bundle --at 03:14:07 -o incident.exhume.zip",
        ),
    ),
    "event": Command(
        "Report a failed job or a deployment to the recorder.",
        (
            'exhume event add --kind job-failed "train-7: NCCL timeout"',
            'exhume event add --kind deployment "agent 4.2"',
            "exhume event ray --follow",
        ),
    ),
    "audit": Command(
        "List units and containers that crash-loop, fail or are unused.",
        ("exhume audit", "exhume audit --all --hours 48", "exhume audit ecs.service --json"),
    ),
    "inventory": Command(
        "Show what this node is made of.",
        ("exhume inventory", "exhume inventory --json", "exhume inventory --root /host --json"),
    ),
    "compare": Command(
        "Show what differs between two nodes or groups.",
        (
            "exhume compare one.json other.json",
            "exhume compare . incident.exhume.zip --html difference.html",
            "exhume compare --lake s3://fleet/lake zone=us-east-1a zone=us-east-1b",
        ),
    ),
    "import": Command(
        "Import perf, sysstat and kernel log files as a recording.",
        (
            "exhume import perf.data --dir incident",
            "exhume import perf.data.* mpstat.json dmesg.txt --dir incident",
            "exhume import script.txt.gz --start 2025-03-03T03:10:00Z --dir incident",
        ),
    ),
    "serve": Command(
        "Show a recording in the browser.",
        ("exhume serve", "exhume serve --dir /tmp/recording --listen 127.0.0.1:0 --no-open"),
    ),
    "zombies": Command(
        "Count and explain cgroups that outlive their removal.",
        ("exhume zombies", "exhume zombies --explain", "exhume zombies --watch --json"),
    ),
    "fix": Command(
        "Plan, apply, verify and roll back the removal of a finding.",
        ("exhume fix plan ecs.service", "exhume fix apply", "exhume fix rollback"),
    ),
    "fleet": Command(
        "Collect many nodes in a lake; report which are sick and why.",
        (
            "exhume fleet push s3://bucket/lake",
            "exhume fleet report --lake /srv/lake",
            "exhume fleet serve --lake /srv/lake",
        ),
    ),
    "install": Command(
        "Install the recorder and the page as systemd services.",
        ("exhume install --dry-run", "exhume install", "exhume install --allow-address 192.0.2.7"),
    ),
    "uninstall": Command("Remove the services; recordings stay.", ("exhume uninstall", "exhume uninstall --purge")),
    "demo": Command(
        "Walk through a synthetic incident on the page.",
        ("exhume demo", "exhume demo --no-open", "exhume demo --keep /tmp/incident"),
    ),
    "lab": Command(
        "Make pathologies and synthetic recordings to test with.",
        ("exhume lab list", "exhume lab run softirq-storm --for 20s", "exhume lab synth --cores 96 --hours 1"),
    ),
}
EXAMPLES = ("exhume", "exhume diagnose --last 10m", "exhume COMMAND --help")
ABOUT = """A flight recorder for CPU starvation: every core, every second, stacks of what ran.

Without a command it records this node into the default directory until it is stopped, and serves the page of that
recording on this machine. Settings can be given as EXHUME_* variables too.

commands:
""" + "\n".join(f"  {name:<11} {command.summary}" for name, command in COMMANDS.items())


def parser_for(names: Sequence[str]) -> Parser:
    """The program's parser, with the options of the given commands; the other commands are only listed."""
    parser = Parser(prog="exhume", description=ABOUT, examples=EXAMPLES, usage="exhume [OPTIONS] [COMMAND ...]")
    parser.add_argument("--version", action="version", version=f"exhume {__version__}", help="Show the version.")
    commands = parser.add_subparsers(
        prog="exhume", dest="command", metavar="COMMAND", help=SUPPRESS, parser_class=Parser
    )
    for name, command in COMMANDS.items():
        module = _load(name) if name in names else None
        added = commands.add_parser(name, description=module.__doc__ if module else None, examples=command.examples)
        if module is not None:
            module.add_options(added)
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command that the arguments name; by default, record and serve."""
    name = next((arg for arg in argv if arg in COMMANDS), "")
    parser = parser_for([name])
    _check_flags(parser, argv, name)
    options = parser.parse_args(argv)
    # Imported here: --help needs no logging, and importing it takes 10 ms.
    from exhume.cli.log import configure_logging

    configure_logging(log_target(options))
    code: int = _load(options.command or "record").run(options)
    return code


def _check_flags(parser: Parser, argv: Sequence[str], name: str) -> None:
    """Raises UsageError for a command's flag before the command or without one, whose value argparse would take for
    the command."""
    for arg in argv[: argv.index(name)] if name else argv:
        flag = arg.partition("=")[0]
        if not flag.startswith("--") or flag == "--" or parser.knows(flag):
            continue
        if name:
            parser.error(
                f"{flag} is not an option of exhume itself; options of a command follow it: exhume {name} {flag}"
            )
        variable = next((setting.variable for setting in SETTINGS if setting.flag == flag), None)
        if variable is not None:
            parser.error(f"{flag} needs a command; without one, set {variable}")
        return


def _load(command: str) -> ModuleType:
    # A module cannot be named after a keyword.
    name = f"{command}_" if iskeyword(command) else command
    return importlib.import_module(f"exhume.cli.commands.{name}")


def run() -> None:
    """The entry point. Reports an error that a user can act on as one sentence on stderr."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal without Unicode gets question marks instead of an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    isolate()
    code: int | str | None
    try:
        code = _run_and_flush()
    except ExhumeError as error:
        _print_error(str(error))
        code = exit_codes.NO_DATA if isinstance(error, NoData) else exit_codes.ERROR
    except BrokenPipeError:
        # The reader of our output has exited (EPIPE).
        _discard_output()
        code = exit_codes.ERROR
    except OSError as error:
        # Code that opens files reports its errors with a file name; an error without one came from stdout.
        if error.filename is not None or error.errno not in OUTPUT_ERRORS:
            raise
        _print_error(f"can't write the output: {os_reason(error)}; send it somewhere else")
        _discard_output()
        code = exit_codes.ERROR
    except KeyboardInterrupt:
        code = exit_codes.INTERRUPTED
    # All remaining memory is freed with the process: a final garbage collection would take 50 ms of CPU.
    if "duckdb" not in sys.modules:
        # Not with duckdb: its binding reports uncollected objects on stderr.
        gc.freeze()
    sys.exit(code)


def _run_and_flush() -> int | str | None:
    """Run the command and flush its output; --help and --version raise SystemExit."""
    try:
        code: int | str | None = main(sys.argv[1:])
    except SystemExit as ended:
        code = ended.code
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def _print_error(text: str) -> None:
    # Imported here: --help and --version print no errors.
    from exhume.cli.terminal import say

    with suppress(OSError):
        say(f"exhume: {text}")


def _discard_output() -> None:
    """Discard unwritable output, so that the interpreter does not fail to flush it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    run()
