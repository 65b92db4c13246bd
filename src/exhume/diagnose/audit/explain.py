"""Why a service is in the state that it is in, in sentences that name the facts."""

import re
import signal
from collections.abc import Mapping

from exhume.diagnose.audit.traits import broken_conditions, pace_per_hour
from exhume.model.audit import Condition, Exit, Manager, Service, Trait
from exhume.model.words import count

# What systemd itself ends with when it can't start a program, as systemd.exec(5) lists it.
_SYSTEMD_CODES = {
    200: "its working directory can't be entered",
    201: "its niceness can't be set",
    202: "its file descriptors can't be set up",
    203: "the program can't be executed: is it there?",
    204: "memory ran out while it was started",
    208: "its standard input can't be set up",
    209: "its standard output can't be set up",
    210: "its root directory can't be changed",
    214: "its scheduling can't be set",
    216: "its group can't be taken",
    217: "its user can't be taken: does it exist?",
    218: "its capabilities can't be set",
    219: "its cgroup can't be set up",
    224: "its login session can't be set up",
    225: "its network namespace can't be set up",
    226: "its mount namespace can't be set up: is a path of it missing?",
    228: "its filter of system calls can't be set",
    233: "its runtime directory can't be made",
    238: "its state directory can't be made",
    239: "its cache directory can't be made",
    240: "its log directory can't be made",
    241: "its configuration directory can't be made",
    242: "a limit of resources can't be set",
    243: "its credentials can't be read",
}
_SHELL_CODES = {126: "the program may not be executed", 127: "the program was not found"}
_RESULTS = {
    "start-limit-hit": "it was started too often in a short time, so systemd gave up",
    "timeout": "it did not answer in time, so systemd killed it",
    "watchdog": "it stopped giving signs of life, so systemd killed it",
    "oom-kill": "memory ran out, and the kernel killed it",
    "core-dump": "it crashed",
    "resources": "systemd could not get the resources to start it",
    "protocol": "it did not start the way that its unit file promises",
    "exec-condition": "its own check said not to start",
}
# What a log says when the reason is outside of the program.
_REASONS = (
    (r"nocredential|no credential|unable to locate credentials|invalidclienttoken|expiredtoken", "has no credentials"),
    (
        r"access ?denied|not authorized|unauthorized|forbidden|\b401\b|\b403\b|invalid api key|api key is invalid",
        "is refused access",
    ),
    (r"no such file or directory|file not found|cannot find|can't find|could not find|enoent", "misses a file"),
    (r"permission denied|operation not permitted|eacces|eperm", "lacks a permission"),
    (
        r"no such host|name or service not known|could not resolve|temporary failure in name resolution",
        "looks for a host that has no address",
    ),
    (
        r"connection refused|no route to host|network is unreachable|connect: .*timed? ?out|i/o timeout",
        "can't reach its peer",
    ),
    (r"address already in use|eaddrinuse", "wants a port that is taken"),
    (
        r"not (yet )?registered|cluster not found|unable to register|failed to register|not joined",
        "is not registered anywhere",
    ),
    (
        r"(invalid|bad|missing|no|empty) config|config(uration)? (error|is missing|not found|invalid)"
        r"|failed to (load|parse|read) .*config",
        "has no usable configuration",
    ),
    (r"out of memory|cannot allocate memory|oomkilled", "runs out of memory"),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), said) for pattern, said in _REASONS)


def explain(service: Service, traits: tuple[Trait, ...], others: Mapping[str, Service]) -> tuple[str, ...]:
    """The sentences, the main one first. `others` are all services, by their key."""
    said: list[str] = []
    if Trait.CRASH_LOOP in traits or Trait.FLAPPING in traits:
        said.append(_looping(service))
    elif Trait.FAILED in traits:
        said.append(_failed(service))
    if Trait.DEPENDENCY_FAILED in traits:
        said += [_dependency(name, others) for name in service.wants.failed]
    if Trait.CONDITION_FAILED in traits and service.held_back:
        said.append(
            f"it was not started, because a fix of exhume's holds it back by {service.held_back}; "
            "exhume fix rollback takes that away"
        )
    elif Trait.CONDITION_FAILED in traits:
        said += [condition_words(each) for each in broken_conditions(service)]
    if any(trait.troubled for trait in traits):
        reason = log_reason(service)
        if reason:
            said.append(reason)
    return tuple(said)


def log_reason(service: Service) -> str:
    """What its log gives as the reason, by the newest line that says something of the kind."""
    for line in reversed(service.log):
        for pattern, said in _COMPILED:
            if pattern.search(line):
                return f"its log says that it {said}"
    return ""


def exit_words(last: Exit | None, manager: Manager = Manager.SYSTEMD) -> str:
    """How it ended: `ended with code 203 (the program can't be executed: is it there?)`."""
    if last is None or (last.code is None and last.signal is None):
        return ""
    if last.signal:
        return f"was killed by {_signal_name(last.signal)}"
    code = last.code or 0
    known = _SYSTEMD_CODES.get(code) if manager is Manager.SYSTEMD else None
    known = known or _SHELL_CODES.get(code)
    if known is None and manager is not Manager.SYSTEMD and 128 < code < 160:
        known = f"that is {_signal_name(code - 128)}"
    return f"ended with code {code}" + (f" ({known})" if known else "")


def condition_words(condition: Condition) -> str:
    """`ConditionPathExists=/etc/x did not hold`."""
    if not condition.parameter and condition.name in ("Condition", "Assert"):
        return "it was not started, because one of its conditions did not hold"
    mark = ("|" if condition.trigger else "") + ("!" if condition.negated else "")
    asked = "it was not started" if condition.name.startswith("Condition") else "its start was refused"
    either = " (nor any other of which one would do)" if condition.trigger else ""
    return f"{asked}, because {condition.name}={mark}{condition.parameter} did not hold{either}"


def _looping(service: Service) -> str:
    history = service.history
    ended = exit_words(service.last_exit, service.manager)
    parts = []
    if history is not None and history.starts:
        bad = "all ended badly" if history.failures >= history.starts else f"{history.failures:,} ended badly"
        pace = pace_per_hour(service)
        parts.append(
            f"{count(history.starts, 'start')} in {hours_words(history.hours)}"
            + (f" ({pace:,.0f} an hour)" if pace >= 1 else "")
            + f", {bad if history.failures else 'none ended badly'}"
        )
    elif service.restarts:
        parts.append(f"it was started again {count(service.restarts, 'time')}")
    else:
        parts.append("it is started again and again")
    if ended:
        parts.append(f"the last {ended}")
    if history is not None and history.age_pattern:
        parts.append(history.age_pattern)
    if service.restart_policy:
        parts.append(_policy(service))
    return "; ".join(parts)


def _failed(service: Service) -> str:
    parts = []
    ended = exit_words(service.last_exit, service.manager)
    known = next((words for result, words in _RESULTS.items() if result in service.result), "")
    if ended:
        parts.append(f"it {ended}")
    if known:
        parts.append(known)
    elif "oom" in service.result.lower():
        parts.append("memory ran out, and the kernel killed it")
    elif not ended and service.result not in ("", "success"):
        parts.append(f"{_manager(service)} says {service.result}")
    if not parts:
        parts.append("it failed")
    restarts = service.restarts or 0
    if restarts and "start-limit-hit" not in service.result:
        parts.append(f"after {count(restarts, 'new start')}")
    return "; ".join(parts) + ", and stays down"


def _dependency(name: str, others: Mapping[str, Service]) -> str:
    failed = others.get(name)
    why = ""
    if failed is not None:
        ended = exit_words(failed.last_exit, failed.manager)
        known = next((words for result, words in _RESULTS.items() if result in failed.result), "")
        why = f": {name} {ended}" if ended else (f": {known}" if known else "")
    return f"it was not started, because {name}, which it requires, failed{why}"


def _policy(service: Service) -> str:
    if service.manager is Manager.SYSTEMD:
        return f"Restart={service.restart_policy}"
    return f"restart policy {service.restart_policy}"


def _manager(service: Service) -> str:
    return {
        Manager.SYSTEMD: "systemd",
        Manager.DOCKER: "Docker",
        Manager.PODMAN: "Podman",
        Manager.CRI: "the kubelet",
    }[service.manager]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def hours_words(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.0f} h"
    return f"{max(1.0, hours * 60):.0f} min"
