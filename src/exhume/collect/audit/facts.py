"""What an audit needs to know of a node besides its services."""

import platform
from collections.abc import Mapping, Sequence

from exhume.collect.audit.agent_checks import AgentChecks
from exhume.collect.audit.service_processes import ProcessTable
from exhume.collect.audit.service_use import uses_of
from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.origin import enabling_links, file_facts, files_of, first_boot
from exhume.model.audit import Answer, Check, NodeFacts, Service
from exhume.model.clock import SystemClock


def gather_facts(root: NodeRoot, services: Sequence[Service], requested: Mapping[str, Sequence[Check]]) -> NodeFacts:
    """The facts about these services; `requested` are the checks to make for some of them, by their keys."""
    table = ProcessTable.read(root.host)
    uses, unseen = uses_of(root, services, table)
    links = {service.key: found for service in services if (found := enabling_links(root, service))}
    paths = [path for service in services for path in files_of(service, links.get(service.key, ()))]
    files, packages = file_facts(root, paths)
    checks = AgentChecks(root, table, {service.id: service for service in services}, uses)
    answers: dict[tuple[str, Check], Answer] = {
        (service.key, check): checks.answer(service, check)
        for service in services
        for check in requested.get(service.key, ())
    }
    if files and not packages:
        unseen.append("which package owns a unit is not known: there is no database of dpkg")
    return NodeFacts(
        node_name(root),
        SystemClock().wall_ns(),
        first_boot(root),
        files,
        links,
        answers,
        uses,
        packages,
        tuple(unseen),
    )


def node_name(root: NodeRoot) -> str:
    """What the node calls itself."""
    if root.is_here:
        return platform.node()
    try:
        return root.file("/etc/hostname").read_text(errors="replace").strip() or platform.node()
    except OSError:
        return platform.node()
