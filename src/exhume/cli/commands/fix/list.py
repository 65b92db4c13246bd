"""Lists the fixes of a work directory."""

from argparse import Namespace

from exhume.cli import exit_codes
from exhume.cli.commands.fix.terminal import print_document, work_dir_flag
from exhume.present.fix_view import list_json, list_lines
from exhume.remedy.ledger import Ledger


def run(options: Namespace) -> int:
    shelf = Ledger(options.work_dir).shelf()
    print_document(options, list_json(shelf), list_lines(shelf, work_dir_flag(options.work_dir)))
    return exit_codes.OK if shelf.fixes or shelf.unreadable else exit_codes.NO_DATA
