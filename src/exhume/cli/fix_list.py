"""List the fixes that were made from this work directory, the newest first, and how each stands."""

from argparse import ArgumentParser, Namespace

from exhume.cli import exit_codes
from exhume.cli.fix_words import add_place, place_words, print_json, print_lines


def add_options(parser: ArgumentParser) -> None:
    add_place(parser)


def run(options: Namespace) -> int:
    from exhume.present.fix_list import list_json, list_lines
    from exhume.remedy.ledger import Ledger

    shelf = Ledger(options.work_dir.absolute()).shelf()
    if options.json:
        print_json(list_json(shelf))
    else:
        print_lines(list_lines(shelf, place_words(options.work_dir)))
    return exit_codes.OK if shelf.fixes or shelf.unreadable else exit_codes.FINDINGS
