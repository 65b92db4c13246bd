"""Compare two nodes, or two groups of nodes: what differs, the likeliest to matter first. Ids, addresses, times and
order don't count.

A and B are each an inventory (exhume inventory --json), the directory of a recording, an incident bundle, this node
(.), or with --lake a group of nodes such as zone=us-east-1a.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_json, add_setting, option, value_of
from exhume.cli.terminal import activity, say, show, write_file
from exhume.model.settings import S3_ENDPOINT


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="An inventory, recording, bundle, this node (.) or group (KEY=VALUE).")
    parser.add_argument("b", metavar="B", help="The same of the other side.")
    option(parser, "--lake LAKE", "Directory or URI of the lake that groups are read from.")
    add_setting(parser, S3_ENDPOINT)
    option(parser, "--all", "List every difference.")
    add_json(parser)
    option(parser, "--html FILE", "Also write a self-contained page.", type=Path)


def run(options: Namespace) -> int:
    # Here, so that --help needs none of it.
    from exhume.cli.commands.compare.sides import read_sides
    from exhume.fleet.compare import compare
    from exhume.present.compare_view import compare_json
    from exhume.present.terminal.compare import print_comparison

    with activity("reading both sides"):
        found = compare(*read_sides(options.a, options.b, options.lake, value_of(options, S3_ENDPOINT)))
    show(
        options,
        lambda: compare_json(found),
        lambda terminal: print_comparison(terminal, found, everything=options.all),
    )
    if options.html is not None:
        from exhume.present.html.compare import compare_report

        content = compare_report(found).encode("utf-8", "replace")
        write_file(options.html, content, "--html")
        say(f"{options.html}: {len(content) / 1e6:.1f} MB, self-contained")
    return exit_codes.FINDINGS if found.differences else exit_codes.OK
