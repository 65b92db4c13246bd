"""Packet filter rules: every packet walks thousands of them, or somebody replaces them all the time."""

from dataclasses import replace

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.hot_path import HotPath, hot_path, on_hot_cores, severity_on_core
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.facts.senders import local_sender
from exhume.model.finding import Culprit, Role, RuledOut

CAUSE = catalogue()["iptables-churn"]
WALK = (CAUSE.more_functions or {})["walk"]
SEND = (CAUSE.more_functions or {})["send"]
REPLACE = tuple(name for name in CAUSE.functions if name not in WALK)


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    if not case.has_stacks:
        return builder.rule_out("no stacks were sampled: time in packet filter rules is not counted anywhere else")
    path = hot_path(case, CAUSE.functions, on_hot_cores(case, CAUSE.functions, CAUSE.limit("core_share")))
    if path is None or path.load.peak < CAUSE.limit("core_share") or not path.load.is_new:
        share = 0.0 if path is None else path.load.peak
        return builder.rule_out(f"packet filter rules took at most {share:.0%} of a core")
    load = path.load
    builder.add(Role.MECHANISM, path.text, path.evidence, strength=min(0.9, load.peak / 0.7 * 0.85), at=load.at)
    walk, writer = hot_path(case, WALK, case.load(WALK, cpus=_cores(case, load))), _writer(case)
    culprit = path.culprit
    doing = "are replaced over and over"
    if writer is not None:
        culprit = writer.culprit
        text = f"{writer.doing('writes', 'write')} the rules anew ({writer.function})"
        builder.add(Role.CULPRIT, text, writer.evidence, strength=0.3, at=writer.load.at)
    if walk is not None and walk.load.cores >= 0.5 * load.cores:
        doing = "are walked by every packet"
        text = f"every packet walks the rules ({walk.function}): there are many, or a storm of packets"
        builder.add(Role.ROOT_CAUSE, text, walk.evidence, strength=0.3, at=walk.load.at)
        if writer is None or writer.load.cores < 0.5 * walk.load.cores:
            culprit = _sender(case, builder, walk)
    where = f"core {load.cpu}"
    summary = f"packet filter rules {doing}: {path.function} took {load.peak:.0%} of a second of {where}"
    who = writer.who if writer is not None else None
    return builder.found(
        severity_on_core(case, load),
        summary,
        culprit=replace(culprit, function=path.function),
        load=load,
        remedies=aim(CAUSE.remedies, who or "nobody seen"),
    )


def _cores(case: Case, load: Load) -> list[int]:
    """The cores that a load is on."""
    return sorted(set(case.samples.cpu[load.mask].tolist()))


def _writer(case: Case) -> HotPath | None:
    """Whoever replaces rules, where that takes time worth telling."""
    path = hot_path(case, REPLACE)
    return path if path is not None and path.load.peak >= CAUSE.limit("core_share") / 4 else None


def _sender(case: Case, builder: EvidenceBuilder, walk: HotPath) -> Culprit:
    """Whose packets they are. Who is interrupted by packets from elsewhere has nothing to do with them."""
    sender = local_sender(case, SEND, CAUSE.limit("core_share") / 4)
    if sender is None:
        return Culprit(cpu=walk.load.cpu)
    builder.add(Role.CULPRIT, sender.text, sender.evidence, at=sender.load.at)
    return replace(sender.culprit, cpu=walk.load.cpu)
