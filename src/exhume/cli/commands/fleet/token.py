"""Tokens of a hub, one a node. They are stored as hashes; adding and revoking takes effect within a second, without a
restart."""

from argparse import ArgumentParser, Namespace
from datetime import UTC

from exhume.cli import exit_codes
from exhume.cli.args import Parser, add_json, option
from exhume.cli.commands.fleet.hub import add_state
from exhume.cli.terminal import say, show
from exhume.model.clock import NANOS
from exhume.model.errors import NoData, UsageError
from exhume.model.times import format_moment

SUMMARY = "Add, list and revoke the tokens of nodes."
EXAMPLES = ("exhume fleet token add --lake /srv/lake node-1", "exhume fleet token revoke --lake /srv/lake node-1")
JSON_VERSION = 1
_VERBS = {
    "add": ("Make a token for a node, and print it.", "exhume fleet token add --lake /srv/lake node-1 > node-1.token"),
    "list": ("List the nodes that have a token.", "exhume fleet token list --lake /srv/lake"),
    "revoke": ("Make the token of a node invalid.", "exhume fleet token revoke --lake /srv/lake node-1"),
}


def add_options(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(
        prog="exhume fleet token", dest="change", metavar="VERB", required=True, parser_class=Parser, title="verbs"
    )
    for name, (summary, example) in _VERBS.items():
        verb = verbs.add_parser(name, help=summary, description=summary, examples=(example,))
        option(verb, "--lake LAKE", "The lake of the hub, if it is a directory.")
        add_state(verb)
        if name == "list":
            add_json(verb)
        else:
            verb.add_argument("node", metavar="NODE", help="Name of the node, as its recorder has it.")


def run(options: Namespace) -> int:
    from exhume.fleet.hub import default_state
    from exhume.fleet.lake import Lake
    from exhume.fleet.tokens import Tokens

    if options.state is None and options.lake is None:
        raise UsageError("name the hub: --lake, or --state where its lake is an object store")
    tokens = Tokens(options.state or default_state(Lake.open(options.lake)))
    if options.change == "add":
        print(tokens.add(options.node))
        say(f"it is shown once; on {options.node}: exhume record --push https://HUB --push-token-file FILE")
    elif options.change == "revoke":
        if not tokens.revoke(options.node):
            raise NoData(f"{options.node} has no token")
    else:
        rows = [(each.node, format_moment(each.added_at * NANOS, UTC, digits=0)) for each in tokens.listed()]
        known = {"version": JSON_VERSION, "tokens": [{"node": node, "added_at": at} for node, at in rows]}
        lines = "\n".join(f"{at}  {node}" for node, at in rows)
        show(options, lambda: known, lambda terminal: terminal.print(lines, markup=False, highlight=False))
        return exit_codes.OK if rows else exit_codes.NO_DATA
    return exit_codes.OK
