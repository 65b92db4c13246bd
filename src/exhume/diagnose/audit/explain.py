"""Explain why a service is in its current state, in sentences that name the facts."""

import re
import signal
from collections.abc import Mapping

from exhume.diagnose.audit.traits import broken_conditions, has_given_up, is_triggered, pace_per_hour
from exhume.model.audit import Condition, Exit, Manager, Service, Trait
from exhume.model.text import count

# Exit codes of systemd itself when it can't start a program, as listed in systemd.exec(5).
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
# Exit codes of programs that follow sysexits.h; systemd's own tools use the same names.
_COMMON_CODES = {
    64: "by convention: it was called wrongly",
    65: "by convention: its input is wrong",
    66: "by convention: an input is missing",
    67: "by convention: a user is not known",
    68: "by convention: a host is not known",
    69: "by convention: something that it needs is not available",
    70: "by convention: an error inside the program",
    71: "by convention: an error of the system",
    72: "by convention: a file of the system is missing",
    73: "by convention: it can't create a file",
    74: "by convention: an error of input or output",
    75: "by convention: it may work later",
    76: "by convention: an error of a protocol",
    77: "by convention: a permission is missing",
    78: "by convention: its configuration is wrong",
}
_SHELL_CODES = {126: "the program may not be executed", 127: "the program was not found"}
_RESULTS = {
    "service-start-limit-hit": "what it starts was started too often in a short time, so systemd gave up on both",
    "trigger-limit-hit": "it was triggered too often in a short time, so systemd gave up",
    "start-limit-hit": "it was started too often in a short time, so systemd gave up",
    "timeout": "it did not answer in time, so systemd killed it",
    "watchdog": "it stopped giving signs of life, so systemd killed it",
    "oom-kill": "memory ran out, and the kernel killed it",
    "core-dump": "it crashed",
    "resources": "systemd could not get the resources to start it",
    "protocol": "it did not start the way that its unit file promises",
    "exec-condition": "its own check refused the start",
}
_MISSES_A_FILE = "misses a file"
# Log messages that show that the reason lies outside of the program.
_REASONS = {
    "has no credentials": "nocredential|no credential|unable to locate credentials|invalidclienttoken|expiredtoken",
    "is refused access": r"access ?denied|not authorized|unauthorized|forbidden|\b401\b|\b403\b|invalid api key"
    "|api key is invalid",
    _MISSES_A_FILE: "no such file or directory|file not found|cannot find|can't find|could not find|enoent",
    "lacks a permission": "permission denied|operation not permitted|eacces|eperm",
    "looks for a host that has no address": "no such host|name or service not known|could not resolve"
    "|temporary failure in name resolution",
    "can't reach its peer": "connection refused|no route to host|network is unreachable|connect: .*timed? ?out"
    "|i/o timeout",
    "wants a port that is taken": "address already in use|eaddrinuse",
    "is not registered anywhere": "not (yet )?registered|cluster not found|unable to register|failed to register"
    "|not joined",
    "has no usable configuration": "(invalid|bad|missing|no|empty) config"
    "|config(uration)? (error|is missing|not found|invalid)|failed to (load|parse|read) .*config",
    "runs out of memory": "out of memory|cannot allocate memory|oomkilled",
}
_MANAGERS = {Manager.SYSTEMD: "systemd", Manager.DOCKER: "Docker", Manager.PODMAN: "Podman", Manager.CRI: "the kubelet"}
_SHOWN = 3
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), reason) for reason, pattern in _REASONS.items())


def explain(service: Service, traits: tuple[Trait, ...], others: Mapping[str, Service]) -> tuple[str, ...]:
    """The sentences, the main one first. `others` are all services, by key."""
    reasons: list[str] = []
    if Trait.CRASH_LOOP in traits or Trait.FLAPPING in traits:
        reasons.append(_looping(service))
    elif Trait.FAILED in traits:
        reasons.append(_failed(service, others))
    if Trait.UNHEALTHY in traits:
        reasons.append(
            "it is up, but the health check that it came with fails; its log ends with the output of that check"
        )
    if Trait.DEPENDENCY_FAILED in traits:
        reasons += [_dependency(name, others) for name in service.wants.failed]
    if Trait.CONDITION_FAILED in traits and service.held_back:
        reasons.append(
            f"it was not started, because a fix of exhume's holds it back by {service.held_back}; "
            "exhume fix rollback takes that away"
        )
    elif Trait.CONDITION_FAILED in traits:
        reasons += [condition_text(each) for each in broken_conditions(service)]
    if any(trait.troubled for trait in traits):
        reason = log_reason(service)
        if reason and not (service.absent and reason.endswith(_MISSES_A_FILE)):
            reasons.append(reason)
    return tuple(reasons)


def log_reason(service: Service) -> str:
    """The reason given in the service's log, from the newest line that contains one."""
    for line in reversed(service.log):
        for pattern, reason in _COMPILED:
            if pattern.search(line):
                return f"its log says that it {reason}"
    return ""


def exit_text(last: Exit | None, manager: Manager = Manager.SYSTEMD) -> str:
    """How the service ended: `ended with code 203 (the program can't be executed: is it there?)`."""
    if last is None or (last.code is None and last.signal is None):
        return ""
    if last.signal == signal.SIGKILL and manager is Manager.SYSTEMD:
        return "was killed by SIGKILL (by a process, or by the kernel as memory ran out: see dmesg)"
    if last.signal:
        return f"was killed by {_signal_name(last.signal)}"
    code = last.code or 0
    known = (_SYSTEMD_CODES.get(code) or _COMMON_CODES.get(code)) if manager is Manager.SYSTEMD else None
    known = known or _SHELL_CODES.get(code)
    if known is None and manager is not Manager.SYSTEMD and 128 < code < 160:
        known = f"that is {_signal_name(code - 128)}"
    return f"ended with code {code}" + (f" ({known})" if known else "")


def condition_text(condition: Condition) -> str:
    """`ConditionPathExists=/etc/x did not hold`."""
    if not condition.parameter and condition.name in ("Condition", "Assert"):
        return "it was not started, because one of its conditions did not hold"
    mark = ("|" if condition.trigger else "") + ("!" if condition.negated else "")
    asked = "it was not started" if condition.name.startswith("Condition") else "its start was refused"
    either = " (nor any other of which one would do)" if condition.trigger else ""
    return f"{asked}, because {condition.name}={mark}{condition.parameter} did not hold{either}"


def _looping(service: Service) -> str:
    history = service.history
    ended = exit_text(service.last_exit, service.manager)
    parts = []
    if history is not None and history.starts:
        bad = "all ended badly" if history.failures >= history.starts else f"{history.failures:,} ended badly"
        pace = pace_per_hour(service)
        parts.append(
            f"{count(history.starts, 'start')} in {hours_text(history.hours)}"
            + (f" ({pace:,.0f} an hour)" if pace >= 1 else "")
            + f", {bad if history.failures else 'none ended badly'}"
        )
    elif service.restarts:
        parts.append(f"it was started again {count(service.restarts, 'time')}")
    else:
        parts.append("it is started again and again")
    if ended:
        parts.append(_before_the_program(service) or f"the last {ended}")
    if service.absent:
        parts.append(_absent(service))
    result = service.result if service.result in _RESULTS else history.last_result if history is not None else ""
    if result in _RESULTS and result != "core-dump":
        parts.append(_RESULTS[result])
    if history is not None and history.age_pattern:
        parts.append(history.age_pattern)
    if is_triggered(service):
        parts.append(f"{', '.join(service.wants.triggered_by[:_SHOWN])} starts it again")
    elif service.wants.restarted_by and service.restart_policy == "no":
        parts.append(_others_start_it(service))
    elif service.restart_policy:
        kept = "Restart=" if service.manager is Manager.SYSTEMD else "restart policy "
        parts.append(f"{kept}{service.restart_policy}")
    return "; ".join(parts)


def _failed(service: Service, others: Mapping[str, Service]) -> str:
    parts = []
    ended = exit_text(service.last_exit, service.manager)
    known = next((text for result, text in _RESULTS.items() if result in service.result), "")
    if ended:
        parts.append(_before_the_program(service) or f"it {ended}")
    if service.absent:
        parts.append(_absent(service))
    if known and not (service.absent and service.result == "resources"):
        parts.append(known)
    elif "oom" in service.result.lower():
        parts.append("memory ran out, and the kernel killed it")
    elif not parts and service.result not in ("", "success"):
        parts.append(f"{_MANAGERS[service.manager]} says {service.result}")
    if not parts:
        parts.append("it failed")
    restarts = service.restarts or 0
    if service.start_limit and "start-limit-hit" not in service.result:
        parts.append(f"systemd gave up on it: {service.start_limit}")
    elif restarts and "start-limit-hit" not in service.result:
        parts.append(f"after {count(restarts, 'new start')}")
    if service.manager is not Manager.SYSTEMD and has_given_up(service):
        parts.append(f"{_MANAGERS[service.manager]} gave up on it: its restart policy is {service.restart_policy}")
    return "; ".join(parts) + _and_now(service, others)


def _absent(service: Service) -> str:
    """`EnvironmentFile=/etc/x is not there`."""
    names = service.absent[:_SHOWN]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not there"


def _before_the_program(service: Service) -> str:
    """`its ExecStartPre= ended with code 78`: not the program, but a command around its start failed."""
    last = service.last_exit
    if last is None or not last.command:
        return ""
    then = ", so its program was not started" if last.command == "ExecStartPre" else ""
    return f"its {last.command}= {exit_text(last, service.manager)}{then}"


def _and_now(service: Service, others: Mapping[str, Service]) -> str:
    """Whether something will start it again."""
    if service.wants.triggers:
        return f": {', '.join(service.wants.triggers[:_SHOWN])} is not started by it any more"
    triggers = service.wants.triggered_by
    down = [name for name in triggers if (other := others.get(name)) is not None and other.state == "failed"]
    if down:
        return f"; it stays down: {', '.join(down[:_SHOWN])}, which starts it, failed too"
    if not triggers and service.wants.restarted_by:
        return f"; {_others_start_it(service)}"
    if not triggers:
        return "; it stays down"
    history = service.history
    fared = ""
    if history is not None and history.starts > 1:
        bad = "all" if history.failures >= history.starts else f"{history.failures:,} of"
        fared = f" ({bad} {count(history.starts, 'start')} in {hours_text(history.hours)} ended badly)"
    return f"; {', '.join(triggers[:_SHOWN])} starts it again{fared}"


def _others_start_it(service: Service) -> str:
    names = service.wants.restarted_by[:_SHOWN]
    have = "has" if len(names) == 1 else "have"
    return f"{', '.join(names)} {have} it started again (Upholds=, OnFailure=, OnSuccess=)"


def _dependency(name: str, others: Mapping[str, Service]) -> str:
    failed = others.get(name)
    why = ""
    if failed is not None:
        ended = exit_text(failed.last_exit, failed.manager)
        known = next((text for result, text in _RESULTS.items() if result in failed.result), "")
        reason = f"{name} {ended}" if ended else _absent(failed) if failed.absent else known
        why = f": {reason}" if reason else ""
    return f"it was not started, because {name}, which it requires, failed{why}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def hours_text(hours: float) -> str:
    return f"{hours:.0f} h" if hours >= 1 else f"{max(1.0, hours * 60):.0f} min"
