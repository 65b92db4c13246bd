"""Check a node's counters: each is compared with the level from which on it matters."""

import math
from collections.abc import Sequence
from dataclasses import replace

from exhume.collect.sources.kmsg_signatures import STARVATION_KINDS
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.facts.owners import is_workload
from exhume.diagnose.zombie_report import GROWING, MANY, UNKNOWN
from exhume.diagnose.zombie_report import Verdict as ZombieVerdict
from exhume.model.clock import NANOS
from exhume.model.finding import Check, Level, Restarted, Scope, Vitals
from exhume.model.text import size
from exhume.model.zombies import Census
from exhume.store.read.events import EventView

# Shares of time, over five minutes, from which on stalls matter. On a busy node some thread always waits for a core,
# all the more on a large one: CPU pressure counts only if that many threads wait for each core (LOAD).
PRESSURE = {"memory": (0.1, 0.4), "io": (0.5, 0.9), "cpu": (0.6, 0.9)}
LOAD = (2.0, 4.0)
# If niced work has this fraction of the busy time, it is what waits.
MOSTLY_NICED = 0.5
THROTTLED = (0.25, 0.75)
LEAST_PERIODS = 1000
STEAL = (0.05, 0.2)
OOM_A_DAY = 10.0
LATELY_NS, DAY_NS = 600 * NANOS, 86_400 * NANOS
# A value this many times above the level worth a look is bad.
FAR = 4
MOST_NAMED = 4


def check_state(vitals: Vitals, census: Census, zombies: ZombieVerdict) -> list[Check]:
    """Check the counters of a node, in the order of the report."""
    return [
        _zombies(census, zombies),
        _cgroups(census),
        _dentries(vitals),
        _mounts(vitals),
        _conntrack(vitals),
        _throttled(vitals),
        *(_pressure(vitals, resource) for resource in ("memory", "io", "cpu")),
        _oom(vitals),
        _steal(vitals),
        _timeouts(vitals),
        _failed_units(vitals),
    ]


def _unseen(name: str, title: str, why: str) -> Check:
    return Check(name, title, Level.UNSEEN, "–", text=why)


def _graded(name: str, title: str, number: float, look: float, bad: float, **shown: str) -> Check:
    """Grade a number by the levels from which on it is worth a look or bad; `text`, what to do, is only shown for
    those."""
    level = Level.BAD if number >= bad else Level.LOOK if number >= look else Level.WELL
    if level is Level.WELL:
        shown.pop("text", None)
    return Check(name, title, level, shown["value"], shown.get("limit", ""), shown.get("text", ""), number)


def _zombies(census: Census, verdict: ZombieVerdict) -> Check:
    title, many = "zombie memory cgroups", catalogue()["zombie-memcgs"].limit("many")
    if verdict.level == UNKNOWN:
        return _unseen("zombies", title, "; ".join([verdict.summary, *verdict.reasons[:1]]))
    level = {GROWING: Level.LOOK, MANY: Level.BAD}.get(verdict.level, Level.WELL)
    text = f"{verdict.summary}; see exhume zombies --explain" if level is not Level.WELL else ""
    dying = census.memory.dying if census.memory else None
    return Check("zombies", title, level, f"{dying or 0:,}", f"under {many:,.0f}", text, dying)


def _cgroups(census: Census) -> Check:
    title, many = "live cgroups", catalogue()["cgroup-excess"].limit("many")
    counted = [(each.visible, each.name) for each in census.hierarchies if each.visible is not None]
    if not counted:
        why = next((each.note for each in census.hierarchies if each.note), "no hierarchy can be walked")
        return _unseen("cgroups", title, why)
    most, name = max(counted)
    value, text = f"{most:,} in {name}", "whatever walks them pays for each"
    return _graded("cgroups", title, most, many, many * FAR, value=value, limit=f"under {many:,.0f}", text=text)


def _dentries(vitals: Vitals) -> Check:
    cause, title, number = catalogue()["negative-dentries"], "negative dentries", vitals.dentries_negative
    if number is None:
        return _unseen("dentries", title, vitals.unseen.get("dentries_negative", "this kernel doesn't count them"))
    part = cause.limit("memory_part") * (vitals.memory_bytes or 1 << 62)
    many = min(cause.limit("many"), part / cause.limit("bytes"))
    text = "names that don't exist are looked up all the time: find who does"
    value, limit = f"{number:,} ({size(round(number * cause.limit('bytes')))})", f"under {many / 1e6:.0f} million"
    return _graded("dentries", title, number, many, many * FAR, value=value, limit=limit, text=text)


def _mounts(vitals: Vitals) -> Check:
    title, many = "mounts", catalogue()["mount-storm"].limit("many")
    if vitals.mounts is None:
        return _unseen("mounts", title, vitals.unseen.get("mounts", "they can't be read"))
    value, text = f"{vitals.mounts:,}", "every change makes all readers of the table read it again"
    return _graded("mounts", title, vitals.mounts, many, many * FAR, value=value, limit=f"under {many:,.0f}", text=text)


def _conntrack(vitals: Vitals) -> Check:
    cause, title = catalogue()["conntrack-pressure"], "tracked connections"
    if vitals.conntrack is None or not vitals.conntrack_max:
        return _unseen("conntrack", title, "connections are not tracked here, or it can't be read")
    filling, full = cause.limit("filling"), cause.limit("full")
    value, limit = f"{vitals.conntrack:,} of {vitals.conntrack_max:,}", f"under {filling:.0%}"
    text = "new connections are dropped when it is full"
    check = _graded(
        "conntrack", title, vitals.conntrack / vitals.conntrack_max, filling, full, value=value, limit=limit, text=text
    )
    return replace(check, number=round(check.number or 0.0, 4))


def _throttled(vitals: Vitals) -> Check:
    title, note = "throttled cgroups", vitals.unseen.get("quotas", "")
    if vitals.quotas is None:
        return _unseen("throttling", title, note or "they can't be read")
    ran = {quota.cgroup: quota.throttled / quota.periods for quota in vitals.quotas if quota.periods >= LEAST_PERIODS}
    if not ran:
        return Check("throttling", title, Level.WELL, "none with a quota that ran", text=note, number=0.0)
    worst = max(ran, key=lambda cgroup: ran[cgroup])
    value = f"{ran[worst]:.0%} of the periods of {worst}" if ran[worst] >= 0.005 else f"none of {len(ran):,}"
    text = "raise its quota, or use fewer threads"
    check = _graded(
        "throttling", title, ran[worst], *THROTTLED, value=value, limit=f"under {THROTTLED[0]:.0%}", text=text
    )
    check = replace(check, text=check.text or note, number=round(ran[worst], 4))
    if not is_workload(worst):
        return check
    # A cgroup's own limit slows that workload only, and leaves more room to the others.
    level = min(check.level, Level.LOOK, key=lambda level: level.rank)
    return replace(check, level=level, scope=Scope.WORKLOAD)


def _pressure(vitals: Vitals, resource: str) -> Check:
    title = f"waiting for {'the CPU' if resource == 'cpu' else 'disks' if resource == 'io' else resource}"
    if resource not in vitals.pressure:
        why = vitals.unseen.get("pressure", "no pressure stall information")
        return _unseen(f"pressure-{resource}", title, f"{why}: boot with psi=1 where the kernel has it")
    minute, five = vitals.pressure[resource]
    value = f"{five:.0%} (5 min), {minute:.0%} (1 min)"
    if resource == "cpu":
        return _cpu_pressure(vitals, title, value, five)
    limit = f"under {PRESSURE[resource][0]:.0%}"
    return _graded(f"pressure-{resource}", title, five, *PRESSURE[resource], value=value, limit=limit)


def _cpu_pressure(vitals: Vitals, title: str, value: str, five: float) -> Check:
    """Waiting for a core matters only if several threads wait for each core, and not by their owner's choice."""
    load, levels = vitals.load or 0.0, (Level.LOOK, Level.BAD)
    reached = [
        level
        for level, pressure, least in zip(levels, PRESSURE["cpu"], LOAD, strict=True)
        if five >= pressure and load >= least
    ]
    value = value if vitals.load is None else f"{value}, {load:.1f} threads for each core"
    limit = f"under {PRESSURE['cpu'][0]:.0%}, or under {LOAD[0]:.0f} threads for each core"
    level, text = Level.WELL, ""
    if reached and (vitals.niced or 0.0) >= MOSTLY_NICED:
        text = "most of it is niced work, which gives way"
    elif reached:
        level, text = reached[-1], "more work than cores: record, and diagnose what wants them and what waits"
    return Check("pressure-cpu", title, level, value, limit, text, number=five)


def _oom(vitals: Vitals) -> Check:
    title, kills = "killed for memory", vitals.oom_kills
    if kills is None:
        return _unseen("oom", title, vitals.unseen.get("oom_kills", "this kernel doesn't count them"))
    days = vitals.uptime_s / 86_400
    a_day, value = kills / max(days, 1 / 24), f"{kills:,} since boot"
    if days >= 1 or not kills:
        level = Level.LOOK if a_day >= OOM_A_DAY else Level.WELL
        value += f", {a_day:.1f} a day" if kills else ""
    else:
        # A part of a day only suggests how many come in a whole one: the range of two standard errors of a Poisson
        # process. A single kill is no rate.
        level = Level.LOOK if a_day >= OOM_A_DAY and kills > 1 else Level.WELL
        error = 2 * math.sqrt(kills + 1)
        fewest, most = (max(kills, round(each / days)) for each in (kills - error, kills + error))
        value += f" {_ago(round(vitals.uptime_s * NANOS))} ago: {fewest:,} to {most:,} a day if that goes on"
    return Check("oom", title, level, value, f"under {OOM_A_DAY:.0f} a day", number=kills)


def _steal(vitals: Vitals) -> Check:
    title = "stolen by the hypervisor"
    if vitals.steal is None:
        return _unseen("steal", title, vitals.unseen.get("steal", "it can't be read"))
    text = "the host gives this machine's time to others: move it, or ask for dedicated cores"
    value, limit = f"{vitals.steal:.1%} since boot", f"under {STEAL[0]:.0%}"
    return _graded("steal", title, vitals.steal, *STEAL, value=value, limit=limit, text=text)


def _timeouts(vitals: Vitals) -> Check:
    title = "network queue timeouts"
    if vitals.tx_timeouts is None:
        return _unseen("nic-timeouts", title, vitals.unseen.get("tx_timeouts", "they can't be read"))
    if not vitals.tx_timeouts:
        return Check("nic-timeouts", title, Level.WELL, "no device with a watchdog", number=0.0)
    bad = ", ".join(f"{device} {number:,}" for device, number in vitals.tx_timeouts.items() if number)
    text = "a starved core or a broken driver: record, and diagnose the next one"
    total = sum(vitals.tx_timeouts.values())
    return _graded("nic-timeouts", title, total, 1, math.inf, value=f"{bad or 'none'} since boot", text=text)


def _failed_units(vitals: Vitals) -> Check:
    title, failed = "failed units", vitals.failed_units
    if failed is None:
        return _unseen("failed-units", title, vitals.unseen.get("failed_units", "they can't be listed"))
    more = f" and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
    named = ", ".join(failed[:MOST_NAMED]) + more
    text = "what depends on them did not start either: see systemctl status"
    return _graded("failed-units", title, len(failed), 1, math.inf, value=named or "none", text=text)


def check_log(events: Sequence[EventView], now: int, unseen: str) -> Check:
    """Check the kernel log for lines about starvation. Old lines are reported but don't count against the node."""
    title = "starvation in the log"
    if unseen:
        return _unseen("kernel-log", title, unseen)
    lines = [event for event in events if event.kind in STARVATION_KINDS]
    if not lines:
        return Check("kernel-log", title, Level.WELL, "none since boot", "none in a day", number=0)
    newest = max(lines, key=lambda event: event.wall)
    age = now - newest.wall
    level = Level.BAD if age < LATELY_NS else Level.LOOK if age < DAY_NS else Level.WELL
    value = f"{len(lines):,}, the newest {_ago(age)} ago"
    return Check("kernel-log", title, level, value, "none in a day", newest.text, len(lines))


def check_restarts(restarted: Sequence[Restarted], looked_s: float) -> Check:
    """Containers and services that restarted while they were watched."""
    title, value = "restarting things", f"none in {looked_s:.0f} s"
    if not restarted:
        return Check("restarts", title, Level.WELL, value, number=0)
    named = ", ".join(f"{each.name} ({each.comm}, {each.age_s:.0f} s old)" for each in restarted[:4])
    text = "what restarts all the time is broken, and costs the whole node: see its log"
    return Check("restarts", title, Level.LOOK, named, "", text, len(restarted))


def _ago(nanos: int) -> str:
    seconds = max(0, nanos // NANOS)
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
