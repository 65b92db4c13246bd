"""Services and nodes as an audit meets them, built by hand."""

import random
import string
from dataclasses import replace

from exhume.diagnose.audit.agents import questions, recognise
from exhume.diagnose.audit.judge import audit
from exhume.model.audit import (
    Answer,
    Audit,
    Condition,
    Exit,
    FileFact,
    FirstBoot,
    History,
    Judged,
    Manager,
    NodeFacts,
    Service,
    ServiceList,
    Use,
    Wants,
)
from exhume.model.clock import NANOS

NOW = 1_900_000_000 * NANOS
HOUR = 3600 * NANOS
FIRST_BOOT = FirstBoot(NOW - 100 * HOUR, "by /etc/machine-id")
BEFORE, SINCE = FIRST_BOOT.at - HOUR, FIRST_BOOT.at + 20 * HOUR


def some_name(seed: int) -> str:
    """A unit that nobody has heard of."""
    chosen = random.Random(seed)
    return "".join(chosen.choices(string.ascii_lowercase, k=9)) + ".service"


def unit(name: str = "thing.service", state: str = "active", detail: str = "running", **more) -> Service:
    known = {
        "fragment": f"/usr/lib/systemd/system/{name}",
        "enabled": "enabled",
        "preset": "enabled",
        "wants": Wants(wanted_by=("multi-user.target",)),
        "restart_policy": "always",
        "age_s": 7200.0 if state == "active" else None,
        "restarts": 0,
        "history": history(),
    }
    return Service(Manager.SYSTEMD, name, name, state=state, detail=detail, **{**known, **more})


def container(name: str = "web", state: str = "running", **more) -> Service:
    known = {"restart_policy": "always", "restarts": 0, "created": SINCE, "image": "registry.example/acme/web:3"}
    known |= {"age_s": 7200.0 if state == "running" else None}
    manager = more.pop("manager", Manager.DOCKER)
    return Service(manager, "ab" * 32, name, state=state, **{**known, **more})


def history(
    starts: int = 0, failures: int = 0, every_s: float = 4.0, ago_s: float = 2.0, hours: float = 24.0
) -> History:
    """Starts that failed so many times, the last of them `ago_s` ago and each so long after the one before."""
    ends = [Exit(NOW - round((ago_s + place * every_s) * NANOS), 1) for place in range(min(failures, 10))]
    # As a journal tells it: over all the hours that it reaches back.
    return History("journal", hours, starts, failures, round(max(0, starts - 1) / hours, 2), tuple(ends))


def looping(name: str = "thing.service", **more) -> Service:
    known = {
        "state": "activating",
        "detail": "auto-restart",
        "restarts": 311,
        "last_exit": Exit(NOW - 2 * NANOS, 1),
        "history": history(312, 312),
    }
    return unit(name, **{**known, **more})


def facts(*services: Service, made: int = BEFORE, linked: int | None = None, answers=None, **more) -> NodeFacts:
    """A node on which the unit files were `made`, and the links that enable them `linked`, at these times."""
    files, links = {}, {}
    for service in services:
        if service.manager is Manager.SYSTEMD and service.fragment:
            link = f"/etc/systemd/system/multi-user.target.wants/{service.id}"
            files[service.fragment] = FileFact(service.fragment, made)
            files |= {path: FileFact(path, made) for path in service.drop_ins}
            files[link] = FileFact(link, made if linked is None else linked)
            links[service.key] = (link,)
    known = {"first_boot": FIRST_BOOT, "files": files, "links": links, "answers": answers or {}}
    return NodeFacts("node-a", NOW, **{**known, **more})


def answered(service: Service, held: bool | None) -> dict:
    """The same answer to everything that the catalogue asks about a service."""
    entry = recognise(service)
    assert entry is not None
    return {(service.key, check): Answer(held, f"{check.kind}: {held}") for check in questions(entry)}


def judged(service: Service, *others: Service, **more) -> Judged:
    """One service, judged among others."""
    return named(whole(service, *others, **more), service.key)


def whole(*services: Service, known: NodeFacts | None = None, **more) -> Audit:
    return audit(ServiceList(list(services), []), known or facts(*services, **more))


def named(audited: Audit, key: str) -> Judged:
    return next(each for each in audited.services if each.service.key == key)


def held(name: str, parameter: str, answer: bool | None, *, trigger: bool = False, negated: bool = False) -> Condition:
    return Condition(name, parameter, answer, trigger, negated)


def used(service: Service, **how) -> dict[str, Use]:
    return {service.key: Use(**how)}


def but(service: Service, **more) -> Service:
    return replace(service, **more)
