"""The command line: one verb per file, loaded when it is called for; and the edge where errors become one sentence."""

import argparse
import errno
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from exhume import __version__
from exhume.cli import exits
from exhume.cli.options import Parser
from exhume.model.errors import ExhumeError
from exhume.model.isolation import isolate

# numpy's linear algebra is not used; its threads would cost CPU and memory at every start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# A start makes a hundred thousand objects that all stay; to look through them for garbage every 700 is in vain.
gc.set_threshold(50_000)

# What the kernel says when output can't be written: a full disk, a quota, a limit, a device that is gone.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

# Every verb and what it does. The file of that name has `add_options(parser)` and `run(options) -> exit code`.
COMMANDS = {
    "record": "Record this node until it is stopped.",
    "doctor": "A verdict on this node in seconds, without a recording.",
    "diagnose": "Tell what starved this node, with the evidence and the remedy.",
    "info": "Tell what a recording holds, lost and cost.",
    "incidents": "List the moments that the recorder marked.",
    "cores": "Draw cores x seconds in the terminal.",
    "flame": "Write a flame graph to SVG, HTML or folded text.",
    "events": "List the kernel log and other events.",
    "audit": "Tell which units and containers crash-loop, fail or are not needed.",
    "serve": "Show a recording in the browser.",
    "zombies": "Count and explain cgroups that live on after their removal.",
    "fix": "Propose what removes a finding, and do it when asked.",
    "lab": "Make pathologies and recordings to try the tools with.",
}

ABOUT = """A flight recorder for CPU starvation: every core, every second, every stack.

Without a command it records this node into the default directory until it is stopped, and serves the page of that
recording on this machine.

commands:
""" + "\n".join(f"  {verb:<11} {summary}" for verb, summary in COMMANDS.items())
CODES = "Exit codes: 0 it ran, 1 nothing found, 2 could not run. Settings can be given as EXHUME_* variables too."


def parser_for(verbs: Sequence[str]) -> Parser:
    """The program's parser, with the options of these verbs filled in (the others are only named)."""
    parser = Parser(prog="exhume", description=ABOUT, epilog=CODES, usage="exhume [-h] [--version] [COMMAND ...]")
    parser.add_argument("--version", action="version", version=f"exhume {__version__}", help="Show the version.")
    commands = parser.add_subparsers(
        prog="exhume", dest="verb", metavar="COMMAND", help=argparse.SUPPRESS, parser_class=Parser
    )
    for verb in COMMANDS:
        loaded = importlib.import_module(f"exhume.cli.{verb}") if verb in verbs else None
        command = commands.add_parser(verb, description=loaded.__doc__ if loaded else None)
        if loaded is not None:
            loaded.add_options(command)
    return parser


def main(words: Sequence[str]) -> int:
    """Run the command that the words name; without one, record and serve."""
    options = parser_for(words[:1]).parse_args(words)
    verb = options.verb or "bare"
    if options.verb is None:
        options = parser_for(["record"]).parse_args(["record"])
    code: int = importlib.import_module(f"exhume.cli.{verb}").run(options)
    return code


def run() -> None:
    """The entry point: errors that a person can do something about are one sentence, and exit with 2."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal without Unicode gets question marks, not an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    isolate()
    code: int | str | None
    try:
        code = _run_to_the_end()
    except ExhumeError as error:
        _complain(str(error))
        code = exits.FAILED
    except BrokenPipeError:
        # Whoever read our output has gone.
        _give_up_output()
        code = exits.FAILED
    except OSError as error:
        # Files are named by whoever fails to open them; what is left is the output.
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        _complain(f"can't write the output: {(error.strerror or str(error)).lower()}; send it somewhere else")
        _give_up_output()
        code = exits.FAILED
    except KeyboardInterrupt:
        code = exits.INTERRUPTED
    sys.exit(code)


def _run_to_the_end() -> int | str | None:
    """Until the output is written, too; help and the version end by themselves."""
    try:
        code: int | str | None = main(sys.argv[1:])
    except SystemExit as ended:
        code = ended.code
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def _complain(text: str) -> None:
    with suppress(OSError):
        print(f"exhume: {text}", file=sys.stderr)


def _give_up_output() -> None:
    """Nothing more can be written, also not by the interpreter at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    run()
