"""Remove what `exhume install` wrote: services, links and files. Recordings stay unless --purge is given.

What was changed since by others is left and named.
"""

from argparse import ArgumentParser, Namespace

from exhume.cli import exit_codes
from exhume.cli.args import option
from exhume.cli.commands.install import install_tools, refuse_without_root, report
from exhume.cli.terminal import say
from exhume.control.installation import STATE_DIRECTORY, WORK_DIRECTORY, hold_installation, uninstall
from exhume.control.journal import Journal


def add_options(parser: ArgumentParser) -> None:
    option(parser, "--purge", f"Also remove the recordings ({STATE_DIRECTORY}) and the user exhume.")
    option(parser, "--dry-run", "Print what would be removed; change nothing.")


def run(options: Namespace) -> int:
    refuse_without_root("uninstall")
    if not (WORK_DIRECTORY / Journal.file).exists():
        say("exhume: not installed: nothing on this node was written by exhume install")
        return exit_codes.NO_DATA
    with install_tools() as tools, hold_installation() as journal:
        if options.dry_run:
            for change in reversed(journal.changes):
                print(f"would remove {change}")
            if options.purge:
                print(f"would remove {STATE_DIRECTORY} with its recordings")
            return exit_codes.OK
        outcome = uninstall(journal, tools, purge=options.purge)
    report(outcome, "nothing to remove")
    if not options.purge and STATE_DIRECTORY.exists():
        say(f"the recordings in {STATE_DIRECTORY} stay; exhume uninstall --purge removes them")
    return exit_codes.ERROR if outcome.left else exit_codes.OK
