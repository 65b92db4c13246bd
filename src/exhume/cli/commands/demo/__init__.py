"""Walk through a synthetic incident: a recording of a busy node in which one of 96 cores stalls for seconds, the
page that shows it, and what to look at.

It needs neither root nor a node in trouble, takes some seconds to begin, and removes all that it made when it ends.
Ctrl-C ends it at any step.
"""

import signal
import subprocess
import sys
import tempfile
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_setting, log_target, option, value_of, zone_of
from exhume.cli.page_process import page_process
from exhume.cli.signals import ended_by_signals
from exhume.cli.terminal import ProgressBar, activity, say
from exhume.model.errors import ExhumeError
from exhume.model.settings import LISTEN, UTC

CORES, HOURS = 96, 5 / 60
# The same incident for everyone: on core 39, in the third minute.
SEED = 315
# A free port, where the usual one is taken by the page of a recorder.
ANY_PORT = "127.0.0.1:0"


def add_options(parser: ArgumentParser) -> None:
    option(parser, "--no-open", "Don't open a browser; the address is printed in any case.")
    # Its first name, which keeps working.
    parser.add_argument("--no-browser", dest="no_open", action="store_true", help=SUPPRESS)
    option(parser, "--keep DIR", "Keep the recording in this directory, which must be new or empty.", type=Path)
    add_setting(parser, LISTEN)
    add_setting(parser, UTC)


def run(options: Namespace) -> int:
    # Not for --help.
    import exhume
    from exhume.cli.commands.demo.walk import steps_of
    from exhume.lab.synth import write_synthetic

    shown = False
    try:
        with ended_by_signals(), _place(options.keep) as directory:
            say("making up five minutes of a node with 96 cores …")
            with ProgressBar("writing") as bar:
                write_synthetic(
                    directory, cores=CORES, hours=HOURS, seed=SEED, progress=lambda done, total: bar(done / total)
                )
            with activity("diagnosing"), exhume.open(directory) as recording:
                steps = steps_of(recording, zone_of(options), kept=options.keep)
            with _served(directory, options) as (link, page):
                shown = True
                _walk([step.text(link) for step in steps])
                _wait_for(page)
    except KeyboardInterrupt:
        # Ctrl-C is how it ends, once there is something to see.
        say("" if options.keep is None else f"\nthe recording is in {options.keep}")
        return exit_codes.OK if shown else exit_codes.INTERRUPTED
    return exit_codes.OK


@contextmanager
def _place(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="exhume-demo-") as made:
        yield Path(made) / "recording"


@contextmanager
def _served(directory: Path, options: Namespace) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The page, and its address."""
    # A bad address is refused.
    value_of(options, LISTEN)
    open_browser = not options.no_open and sys.stdout.isatty()
    usual = options.listen == LISTEN.default
    for listen in (options.listen, ANY_PORT) if usual else (options.listen,):
        with page_process(directory, listen, log_target(options), captured=True, open_browser=open_browser) as page:
            assert page.stdout is not None
            printed = ""
            # Its address comes last; a note on privileges may come first.
            while not printed.startswith("http") and (line := page.stdout.readline()):
                printed = line.decode(errors="replace").removeprefix("exhume: ").strip()
            if printed.startswith("http"):
                yield printed, page
                return
    raise ExhumeError(printed or "the page's server ended; see exhume serve --help")


def _walk(texts: list[str]) -> None:
    """Print the steps, one at a time where someone reads along."""
    attended = sys.stdin.isatty() and sys.stdout.isatty()
    for number, text in enumerate(texts, 1):
        print(f"\n[{number}/{len(texts)}] {text}", flush=True)
        if attended and number < len(texts):
            print("\n      Enter for the next step, Ctrl-C to end.", end="", flush=True)
            if not sys.stdin.readline():
                attended = False


def _wait_for(page: subprocess.Popen[bytes]) -> None:
    """Until a signal comes, or the page's server ends."""
    code = page.wait()
    if code not in (exit_codes.OK, -signal.SIGTERM):
        raise ExhumeError(f"the page's server ended with code {code}; start it again with exhume demo")
