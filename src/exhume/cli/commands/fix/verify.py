"""Compare the measures that a fix should change with the time before it: improved, unchanged, worse, or not proven,
each with the figures and the reason.

Without an ID it is the newest fix that was applied. Time since the fix that a recording covers need not be waited for.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli import exit_codes
from exhume.cli.args import add_setting, value_of, zone_of
from exhume.cli.commands.fix.arguments import add_root, add_work_dir, seconds, work_dir_flag
from exhume.cli.commands.fix.terminal import print_json, printable, warn_unreadable
from exhume.model.errors import ExhumeError, RecordingError, UsageError
from exhume.model.settings import COLOR, DIR, UTC

if TYPE_CHECKING:
    from datetime import tzinfo

    from exhume.collect.node_root import NodeRoot
    from exhume.remedy.ledger import Fix, Ledger
    from exhume.remedy.verify.proof import Claim, Proof
    from exhume.store.read.recording import Recording

_SHORTEST_S = 1.0


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="The fix, as exhume fix list names it.")
    parser.add_argument(
        "--for",
        dest="length",
        type=seconds,
        metavar="DURATION",
        default=600.0,
        help="How long to look at the time since the fix [default: 10m].",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="Also write a self-contained page.")
    add_root(parser, "as when it was applied")
    add_setting(parser, DIR, "-d")
    add_work_dir(parser)
    add_setting(parser, UTC)


def run(options: Namespace) -> int:
    from exhume.cli.signals import stopped_by_signals
    from exhume.cli.terminal import ProgressBar
    from exhume.collect.node_root import NodeRoot
    from exhume.remedy.ledger import Ledger
    from exhume.remedy.verify.proof import verify
    from exhume.remedy.verify.restarts import NodeRestarts

    if options.length < _SHORTEST_S:
        raise UsageError("--for must be at least 1s, for example 10m")
    fix = _chosen(Ledger(options.work_dir.absolute()), options.id)
    root = NodeRoot((options.root or Path(fix.root)).absolute())
    _same_node(fix, root)
    restarts = NodeRestarts(root)
    try:
        with stopped_by_signals() as stop, ProgressBar("watching") as bar:
            proof = verify(
                _claim(fix),
                root.host,
                options.length,
                _recording(options, root),
                restarts=restarts,
                stop=stop,
                progress=bar,
            )
    finally:
        restarts.close()
    zone = zone_of(options)
    _print(proof, options, zone)
    if options.html is not None:
        _write_page(proof, options.html, zone)
    return _exit_code(proof, fix, work_dir_flag(options.work_dir))


def _chosen(ledger: "Ledger", id_: str | None) -> "Fix":
    from exhume.remedy.ledger import FixState

    if id_ is None:
        warn_unreadable(ledger)
    fix = ledger.read(id_) if id_ is not None else ledger.newest(FixState.APPLIED)
    if fix is None:
        raise UsageError(f"no fix was applied from {ledger.place}; see exhume fix list")
    if fix.state is not FixState.APPLIED or fix.applied_at is None:
        raise UsageError(f"fix {fix.id} is {fix.state.value}: only one that is applied can be verified")
    return fix


def _same_node(fix: "Fix", root: "NodeRoot") -> None:
    try:
        machine = root.file("/etc/machine-id").read_text(errors="replace").strip()
    except OSError:
        machine = ""
    if machine != fix.machine:
        raise UsageError(f"fix {fix.id} was made on another machine; name its root directory with --root")


def _claim(fix: "Fix") -> "Claim":
    from exhume.remedy.verify.proof import Baseline, Claim

    assert fix.applied_at is not None
    return Claim(
        id=fix.id,
        node=fix.node,
        target=fix.target,
        effects=fix.effects,
        began=fix.applied_at,
        ended=fix.finished_at or fix.applied_at,
        done=fix.done,
        baseline=None if fix.baseline is None else Baseline.from_dict(fix.baseline),
    )


def _recording(options: Namespace, root: "NodeRoot") -> "Recording | None":
    """The recording, where there is one of this node; one that was named has to be there."""
    from exhume.model.settings import default_directory
    from exhume.store.read.recording import Recording

    directory = value_of(options, DIR)
    try:
        return Recording.open(directory) if root.is_here or directory != default_directory() else None
    except RecordingError:
        if directory != default_directory():
            raise
        return None


def _print(proof: "Proof", options: Namespace, zone: "tzinfo | None") -> None:
    if options.json:
        from exhume.present.verify_view import verification_json

        print_json(verification_json(proof.verification, zone))
        return
    from exhume.present.terminal.console import console
    from exhume.present.terminal.verify import print_verification

    print_verification(console(value_of(options, COLOR)), proof.verification, zone)


def _write_page(proof: "Proof", target: Path, zone: "tzinfo | None") -> None:
    from exhume.cli.terminal import say
    from exhume.present.html.verify import verify_report

    content = verify_report(proof, zone).encode("utf-8", "replace")
    try:
        target.write_bytes(content)
    except OSError as error:
        raise ExhumeError(f"can't write {target}: {error.strerror}; choose another file with --html") from error
    say(printable(f"{target}: {len(content) / 1e3:.0f} kB, opens anywhere without a network"))


def _exit_code(proof: "Proof", fix: "Fix", where: str) -> int:
    from exhume.cli.terminal import suggest
    from exhume.present.verify_view import not_ruled_out, verdict

    if proof.verification.interrupted:
        return exit_codes.INTERRUPTED
    found = verdict(proof.verification)
    if found == "worse":
        suggest(f"exhume fix rollback {fix.id}{where}")
    elif found == "unproven" or any(each.before.observations for each in not_ruled_out(proof.verification)):
        suggest(f"exhume fix verify {fix.id} --for 30m{where}")
    return exit_codes.OK if found == "proved" else exit_codes.FINDINGS
