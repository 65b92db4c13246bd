"""What stands out about a service: it crash-loops, flaps, failed, was kept from starting. Judged by how it fared, not
by how it looks at one moment."""

from exhume.model.audit import Condition, History, Manager, Service, Trait

# Started again so often in an hour, after bad ends, is a loop. Kubernetes waits for up to five minutes between two
# attempts, Docker for a minute, systemd as long as the unit says: none of them falls below this.
LOOP_PER_HOUR = 4.0
# Fewer bad ends than this happen on any day.
LEAST_ENDS = 3
# In a loop at least every other start ends badly.
MOSTLY = 0.5
# A restart by hand after a quiet hour does not make a loop: what ended before that is past.
RECENT_S = 3600.0
# Without a history: a service that is this young and was started again this often loops.
YOUNG_S = 60.0
YOUNG_RESTARTS = 5
# What was up for this long did its work, however it ended.
WORKED_S = 600.0
# How long after an end a manager may still be about to start it again: thrice what it waits at most.
_WAITS_S = {Manager.CRI: 900.0, Manager.DOCKER: 180.0, Manager.PODMAN: 180.0}
# Exit codes of a container that was stopped by hand (Ctrl-C, kill, terminate), unless memory ran out.
_STOPPED_CODES = frozenset({0, 130, 137, 143})
_STOPPED_SIGNALS = frozenset({0, 2, 9, 15})
_ACTIVE = frozenset({"active", "reloading", "activating", "refreshing", "running", "restarting", "deactivating"})
_TRIGGERS = (".timer", ".path", ".socket")
_ENDED = frozenset({"exited", "dead", "stopped", "container_exited"})


def traits_of(service: Service, now: int) -> tuple[Trait, ...]:
    """Its traits, the worst first; whether the image's default started it is for the provenance to say."""
    if service.held_back and not is_active(service):
        # It is held back by a fix, whatever it did before.
        return (Trait.CONDITION_FAILED,)
    found = []
    if _loops(service, now):
        found.append(Trait.CRASH_LOOP)
    elif has_failed(service):
        found.append(Trait.FAILED)
    elif service.wants.failed and not is_active(service):
        found.append(Trait.DEPENDENCY_FAILED)
    elif _flaps(service, now):
        found.append(Trait.FLAPPING)
    # It is up, and the check that came with it says that it does not work.
    unhealthy = service.state == "running" and service.detail == "unhealthy"
    if service.manager is not Manager.SYSTEMD and unhealthy and not found:
        found.append(Trait.UNHEALTHY)
    if broken_conditions(service) and not is_active(service) and not found:
        found.append(Trait.CONDITION_FAILED)
    return tuple(found)


def is_active(service: Service) -> bool:
    """Whether its manager has it running, or is about to."""
    return service.state in _ACTIVE


def is_between_starts(service: Service) -> bool:
    """Whether it just ended and its manager waits to start it again."""
    return service.detail.startswith("auto-restart") or service.state == "restarting"


def has_failed(service: Service) -> bool:
    """Whether it ended badly and stays down."""
    if service.manager is Manager.SYSTEMD:
        return service.state == "failed"
    out_of_memory = "oom" in service.result.lower() or "memory" in service.result.lower()
    return service.state.lower() in _ENDED and (out_of_memory or ended_badly(service))


def ended_badly(service: Service) -> bool:
    """Whether its last end was not requested."""
    last = service.last_exit
    if last is None:
        return False
    if service.manager is Manager.SYSTEMD:
        return bool(last.code) or last.signal not in (None, 0, 15)
    return (last.code or 0) not in _STOPPED_CODES or (last.signal or 0) not in _STOPPED_SIGNALS


def has_worked(service: Service) -> bool | None:
    """Whether it did its work at least once, as far back as can be seen; None where that isn't known."""
    if is_active(service) and not is_between_starts(service) and (service.age_s or 0) > YOUNG_S:
        return True
    history = service.history
    if history is not None and (history.longest_s or 0.0) >= WORKED_S:
        return True
    if history is not None and history.starts:
        if history.failures >= LEAST_ENDS and history.failures >= history.starts - (1 if is_active(service) else 0):
            return False
        return history.failures < history.starts or None
    if service.wants.failed and not is_active(service):
        return False
    if is_between_starts(service) and (service.restarts or 0) >= LEAST_ENDS:
        return False
    return None


def broken_conditions(service: Service) -> tuple[Condition, ...]:
    """The conditions that kept it from starting: one that did not hold, or all of those of which one would do."""
    plain = [each for each in service.conditions if not each.trigger and each.held is False]
    either = [each for each in service.conditions if each.trigger]
    if either and all(each.held is False for each in either):
        plain += either
    return tuple(plain)


def is_triggered(service: Service) -> bool:
    """Whether something else starts it each time: a timer's job comes and goes by design."""
    return any(each.endswith(_TRIGGERS) for each in service.wants.triggered_by) and not service.restarts


def _loops(service: Service, now: int) -> bool:
    if is_triggered(service) and not is_between_starts(service):
        return False
    history = service.history
    if history is not None and history.starts:
        return (
            history.failures >= LEAST_ENDS
            and history.failures >= MOSTLY * history.starts
            and pace_per_hour(service) >= LOOP_PER_HOUR
            and _is_recent(service, history, now)
        )
    if is_between_starts(service):
        return (service.restarts or 0) >= LEAST_ENDS
    return is_active(service) and _is_young(service) and (service.restarts or 0) >= YOUNG_RESTARTS


def _flaps(service: Service, now: int) -> bool:
    """Comes and goes, though not in a loop of failures: it is started again and again after ends that look well, or
    ends badly now and then."""
    history = service.history
    if history is None or not history.starts:
        return False
    if is_triggered(service):
        # A job that fails each time, seen while it runs once more.
        return history.failures >= max(LEAST_ENDS, MOSTLY * history.starts)
    if (service.restarts or 0) >= LEAST_ENDS and (history.restarts_per_hour or 0.0) >= LOOP_PER_HOUR:
        return _is_recent(service, history, now)
    return history.failures >= LEAST_ENDS


def pace_per_hour(service: Service) -> float:
    """How often it is started again in an hour. Over the last ends where their times are known: a loop that began ten
    minutes ago is one, whatever the day before was like."""
    history = service.history
    if history is None:
        return 0.0
    counted = history.restarts_per_hour or 0.0
    times = sorted(each.at for each in history.exits if each.at is not None)
    if len(times) < LEAST_ENDS:
        return counted
    seconds = (times[-1] - times[0]) / 1e9
    return max(counted, (len(times) - 1) * 3600.0 / seconds) if seconds > 0 else counted


def _is_recent(service: Service, history: History, now: int) -> bool:
    """Whether it still goes on: it failed just now, is being started again or about to be, or is young."""
    # Whether systemd is at one more start of it: on a node that has no time to spare, what comes before the program
    # itself may take many times as long as it did before.
    restarted = service.manager is Manager.SYSTEMD and service.state == "activating" and bool(service.restarts)
    if is_between_starts(service) or restarted or _is_young(service):
        return True
    if has_given_up(service):
        return False
    last = max((each.at for each in history.exits if each.at is not None), default=None)
    if last is None and service.last_exit is not None:
        last = service.last_exit.at
    if last is None:
        return not is_active(service) or service.age_s is None
    if service.restart_policy == "no" and service.restarts and not is_active(service):
        # Its restart policy was taken away.
        return False
    pause = 3600.0 / max(pace_per_hour(service), LOOP_PER_HOUR)
    # What kubelet starts again is a pod's, whichever runtime has it.
    manager = Manager.CRI if service.pod is not None else service.manager
    waits = YOUNG_S if service.wants.restarted_by else _WAITS_S.get(manager, 0.0)
    return (now - last) / 1e9 <= max(waits, min(RECENT_S, 3 * pause))


def has_given_up(service: Service) -> bool:
    """Whether its manager does not start it again: that is a failure, and no loop any more. A unit that another one has
    started again and again is down only for the moment."""
    if service.state == "failed":
        return not service.wants.restarted_by
    policy, _, most = service.restart_policy.partition(":")
    tried = policy == "on-failure" and most.isdigit() and (service.restarts or 0) >= int(most) > 0
    return tried and service.state in _ENDED


def _is_young(service: Service) -> bool:
    return service.age_s is not None and service.age_s < YOUNG_S and is_active(service)
