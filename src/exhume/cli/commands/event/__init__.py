"""Report something to the recorder of this node: a failed job, a deployment, a note. It appears in `exhume events`, on
the page's timeline, and next to the incident that explains it."""

from argparse import ArgumentParser, Namespace

from exhume.cli.args import TIME_FORMS, Parser, add_setting, option
from exhume.model.job_event import KINDS, NOTE
from exhume.model.settings import EVENTS_SOCKET, UTC

RAY_ADDRESS = "http://127.0.0.1:8265"


def add_options(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(
        prog="exhume event", dest="verb", metavar="VERB", required=True, parser_class=Parser, title="verbs"
    )
    add = verbs.add_parser(
        "add",
        help="Report one event.",
        description="Report one event. It is recorded within a second.",
        examples=(
            'exhume event add --kind job-failed "train-7: NCCL timeout" --attr job=train-7',
            'exhume event add --kind deployment --at "2m ago" "agent 4.2"',
        ),
    )
    add.add_argument("text", metavar="TEXT", help="What happened, in a line.")
    option(add, "--kind KIND", "Kind of the event.", choices=tuple(KINDS), default=NOTE)
    option(add, "--at TIME", f"When it happened, within the last day: {TIME_FORMS}.", default="now")
    option(add, "--node NODE", "Node on which it happened, if it is another one.", default="")
    option(add, "--attr NAME=VALUE", "An attribute; can be repeated.", action="append", default=[])
    add_setting(add, EVENTS_SOCKET)
    add_setting(add, UTC)
    ray = verbs.add_parser(
        "ray",
        help="Report failures of a running Ray.",
        description="Report failed jobs, actors and nodes of a running Ray, each once, from its dashboard's state API.",
        examples=("exhume event ray", "exhume event ray --address http://head:8265 --follow"),
    )
    option(ray, "--address URL", "Address of the Ray dashboard.", default=RAY_ADDRESS)
    option(ray, "--follow", "Go on and report new failures, until it is stopped.")
    option(ray, "--every DURATION", "How often to ask with --follow.", default="10s")
    option(ray, "--dry-run", "Print the failures instead of reporting them.")
    add_setting(ray, EVENTS_SOCKET)


def run(options: Namespace) -> int:
    if options.verb == "ray":
        from exhume.cli.commands.event.ray import run as run_verb
    else:
        from exhume.cli.commands.event.add import run as run_verb
    return run_verb(options)
