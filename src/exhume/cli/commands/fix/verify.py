"""Compares the measures that a fix should change with the time before it."""

from argparse import Namespace
from contextlib import closing
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import value_of, zone_of
from exhume.cli.commands.fix.terminal import print_document, printable, warn_unreadable, work_dir_flag
from exhume.cli.signals import stopped_by_signals
from exhume.cli.terminal import ProgressBar, say, suggest, write_file
from exhume.collect.node_root import NodeRoot
from exhume.model.clock import SystemClock
from exhume.model.errors import RecordingError, UsageError
from exhume.model.settings import COLOR, DIR, default_directory
from exhume.model.times import Reference, parse_moment
from exhume.present.html.reports import verify_report
from exhume.present.terminal.console import console
from exhume.present.terminal.verify import print_verification
from exhume.present.verify_view import not_ruled_out, verdict, verification_json
from exhume.remedy.ledger import Fix, FixState, Ledger, last_plan, plan_of
from exhume.remedy.services.node import MACHINE_ID, read_line
from exhume.remedy.verify.proof import verify
from exhume.remedy.verify.restarts import NodeRestarts
from exhume.store.read.recording import Recording

_SHORTEST_S = 1.0


def run(options: Namespace) -> int:
    if options.length < _SHORTEST_S:
        raise UsageError("--for must be at least 1s, for example 10m")
    ledger = Ledger(options.work_dir)
    fix = _chosen(ledger, options.id) if options.since is None else _by_hand(ledger, options)
    root = NodeRoot((options.root or Path(fix.root)).absolute())
    if read_line(root, MACHINE_ID) != fix.machine:
        raise UsageError(f"fix {fix.id} was made on another machine; name its root directory with --root")
    recording = _recording(value_of(options, DIR), root)
    with closing(NodeRestarts(root)) as restarts, stopped_by_signals() as stop, ProgressBar("watching") as bar:
        proof = verify(fix, root.host, options.length, recording, restarts=restarts, stop=stop, progress=bar)
    found, zone = proof.verification, zone_of(options)
    if options.json:
        print_document(options, verification_json(found, zone), ())
    else:
        print_verification(console(value_of(options, COLOR)), found, zone)
    if options.html is not None:
        content = verify_report(proof, zone).encode("utf-8", "replace")
        write_file(options.html, content, "--html")
        say(printable(f"{options.html}: {len(content) / 1e3:.0f} kB, opens anywhere without a network"))
    if found.interrupted:
        return exit_codes.INTERRUPTED
    where = work_dir_flag(options.work_dir)
    if verdict(found) == "worse":
        suggest(f"exhume fix rollback {fix.id}{where}")
    elif verdict(found) == "unproven" or any(each.before.observations for each in not_ruled_out(found)):
        suggest(f"exhume fix verify {fix.id} --for 30m{where}")
    return exit_codes.OK if verdict(found) == "proved" else exit_codes.FINDINGS


def _chosen(ledger: Ledger, id_: str | None) -> Fix:
    if id_ is None:
        warn_unreadable(ledger)
    fix = ledger.read(id_) if id_ is not None else ledger.newest(FixState.APPLIED)
    if fix is None:
        raise UsageError(f"no fix was applied from {ledger.place}; see exhume fix list")
    if fix.state is not FixState.APPLIED or fix.applied_at is None:
        raise UsageError(f"fix {fix.id} is {fix.state.value}: only one that is applied can be verified")
    return fix


def _by_hand(ledger: Ledger, options: Namespace) -> Fix:
    """A plan whose steps a person took, at a moment that was given: kept as a fix, to be verified again later."""
    now = SystemClock().wall_ns()
    since = parse_moment(options.since, Reference(now, now, now, zone_of(options)))
    plan = last_plan(ledger.place) if options.id is None else plan_of(ledger.place, options.id)
    if not plan.plan.steps:
        raise UsageError(f"plan {plan.id} has no step that could have been taken; make one with exhume fix plan")
    if since > now:
        raise UsageError(f"--since {options.since} is in the future; name when the change was made")
    if any(fix.id == plan.id and fix.done for fix in ledger.fixes()):
        raise UsageError(f"fix {plan.id} was applied by exhume fix apply; verify it without --since")
    fix = plan.begun().taken_by_hand(since)
    return ledger.save(fix)


def _recording(directory: Path, root: NodeRoot) -> Recording | None:
    """The recording, where there is one of this node; one that was named has to be there."""
    named = directory != default_directory()
    try:
        return Recording.open(directory) if root.is_here or named else None
    except RecordingError:
        if named:
            raise
        return None
