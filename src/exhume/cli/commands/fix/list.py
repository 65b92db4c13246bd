"""List the fixes of a work directory, the newest first, and their states."""

from argparse import ArgumentParser, Namespace

from exhume.cli import exit_codes
from exhume.cli.commands.fix.arguments import add_work_dir, work_dir_flag
from exhume.cli.commands.fix.terminal import print_json, print_lines


def add_options(parser: ArgumentParser) -> None:
    add_work_dir(parser)


def run(options: Namespace) -> int:
    from exhume.present.fix_list import list_json, list_lines
    from exhume.remedy.ledger import Ledger

    shelf = Ledger(options.work_dir.absolute()).shelf()
    if options.json:
        print_json(list_json(shelf))
    else:
        print_lines(list_lines(shelf, work_dir_flag(options.work_dir)))
    return exit_codes.OK if shelf.fixes or shelf.unreadable else exit_codes.NO_DATA
