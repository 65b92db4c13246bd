"""Kernel log messages about a starved core: the one table of log lines that the recorder recognises.

To add a line: one entry with a literal that every such line contains (most other lines are rejected by it) and a
pattern. Named groups become columns of the events table: device, queue, cpu, pid, comm, value; ms, us and ns are a
value in seconds.
"""

import re
from dataclasses import dataclass

PLAIN_KIND = "kernel-line"

# A network driver's lines begin with its name, the bus address and the interface; the last of them names the device.
_DEVICE = r"(?:(?P<device>\S+)(?: \([^)]*\))?: )?"


@dataclass(frozen=True, slots=True)
class Signature:
    """One recognised line."""

    kind: str
    severity: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Recognised:
    """The content of a recognised line."""

    kind: str
    severity: str
    fields: dict[str, str | int | float]


# (kind, severity, literals...): pattern. Without a pattern: a driver's line with the literal after the device.
_STARVATION: dict[tuple[str, ...], str] = {
    # --- ENA: a queue whose softirq did not run -------------------------------------------------------------------
    ("nic-tx-paused", "critical", "is paused for too long"): (
        _DEVICE + r"TX q (?P<queue>\d+) is paused for too long \(threshold \d+\)\. "
        r"(?:Time since last napi (?P<us>\d+) usec|usecs since napi (?P<us_2>\d+))\. napi scheduled: [01]"
        r"(?:\. napi CPU: (?P<cpu>-?\d+))?(?:\. msecs since (?:last )?interrupt: \d+)?"
    ),
    ("nic-napi-starved", "critical", "napi handler hasn't been called for a long time but is scheduled"): "",
    ("nic-tx-lost-completions", "critical", "ost TX completion", "lost tx completion"): (
        _DEVICE + r"(?:Lost TX completions are above (?:the )?threshold"
        r"|The number of lost tx completions? is above the threshold) \((?P<value>\d+) > \d+\)"
    ),
    ("nic-tx-missed-completion", "warning", "wasn't completed on time", "TX hasn't completed"): (
        _DEVICE + r"(?:Found a Tx that wasn't completed on time|TX hasn't completed), qid:? (?P<queue>\d+), index:? \d+"
    ),
    ("nic-tx-missed-completion", "warning", "missed TX completions"): (
        _DEVICE + r"(?P<value>\d+) new missed TX completions, qid: (?P<queue>\d+)"
    ),
    ("nic-keep-alive-timeout", "critical", "Keep alive watchdog timeout"): (
        _DEVICE + r"Keep alive watchdog timeout(?:, (?P<ms>\d+) msecs since last keep alive)?\."
    ),
    ("nic-reset", "critical", "Device reset completed"): (
        _DEVICE + r"Device reset completed(?: successfully|, status: (?P<value>-?\d+))(?:, Driver info: .*)?"
    ),
    ("nic-tx-timeout", "critical", "Transmit time out"): "",
    # --- every driver: the kernel's own watchdog. The core that it names runs the timer; it is not the starved one ---
    ("nic-watchdog", "critical", "NETDEV WATCHDOG"): (
        r"(?:(?P<device_2>\S+): )?NETDEV WATCHDOG: (?:(?P<device>\S+) \([^)]+\): |CPU: \d+: )"
        r"transmit queue (?P<queue>\d+) timed out(?: (?P<ms>\d+) ms)?"
    ),
    # --- mlx5, bnxt, virtio_net, and the drivers that log the same -------------------------------------------------
    ("nic-tx-timeout", "critical", "TX timeout on queue"): (
        _DEVICE + r"TX timeout on queue: (?P<queue>\d+), (?i:sq): [^\s,]+(?:,.*? (?P<us>\d+) usecs ago)?"
    ),
    ("nic-tx-timeout", "critical", "TX timeout detected"): "",
    # --- ixgbe, i40e, ice ---------------------------------------------------------------------------------------------
    ("nic-tx-hang", "critical", "Detected Tx Unit Hang"): "",
    ("nic-tx-hang", "critical", "resetting adapter"): (
        _DEVICE + r"tx hang (?P<value>\d+) detected on queue (?P<queue>\d+), resetting adapter"
    ),
    ("nic-tx-timeout", "critical", "initiating reset due to tx timeout"): "",
    ("nic-tx-timeout", "critical", "tx_timeout: VSI_"): _DEVICE + r"tx_timeout: VSI_(?:seid|num): ",
    ("nic-tx-timeout", "critical", "tx_timeout recovery"): (
        _DEVICE + r"tx_timeout recovery level (?P<value>\d+), (?:hung_queue|txqueue) (?P<queue>\d+)"
    ),
    # --- gve ----------------------------------------------------------------------------------------------------------
    ("nic-tx-timeout", "critical", "Timeout on tx queue"): _DEVICE + r"Timeout on tx queue, (?P<queue>\d+)",
    ("nic-reset", "critical", "Performing reset"): "",
    # --- lockups and stalls: from 10 s (hard), 20 s (soft) and 21 s (RCU) on ------------------------------------------
    ("soft-lockup", "critical", "soft lockup"): (
        r"BUG: soft lockup - CPU#(?P<cpu>\d+) stuck for (?P<value>\d+)s! \[(?P<comm>.+):(?P<pid>\d+)\]"
    ),
    ("hard-lockup", "critical", "hard LOCKUP"): r"Watchdog detected hard LOCKUP on cpu (?P<cpu>\d+)",
    ("rcu-stall", "critical", " stall"): (
        r"INFO: (?P<comm>\S+) (?:self-detected stall on CPU|detected (?:expedited )?stalls on (?:CPUs/)?tasks)"
    ),
    # In jiffies.
    ("rcu-starved", "critical", "kthread starved"): (
        r"(?P<comm>\S+) kthread starved for (?P<value>\d+) jiffies!.*->cpu=(?P<cpu>\d+)"
    ),
    ("hung-task", "warning", "blocked for more than"): (
        r"INFO: task (?P<comm>.+):(?P<pid>\d+) blocked for more than (?P<value>\d+) seconds"
    ),
    ("workqueue-hog", "warning", "hogged CPU"): (
        r"workqueue: (?P<comm>\S+)(?: \[\S+\])? hogged CPU for >(?P<us>\d+)us \d+ times"
    ),
    ("workqueue-lockup", "critical", "workqueue lockup"): r"BUG: workqueue lockup - pool",
    ("rt-throttling", "warning", "RT throttling"): r"sched: RT throttling activated",
}
_OTHERS: dict[tuple[str, ...], str] = {
    # --- network drivers. ENA 2.17.0 prints the two numbers in the wrong order: neither is taken for a queue or a core
    ("nic-napi-core", "info", "[2/2] qid:"): r"\[2/2\] qid: -?\d+, napi CPU: -?\d+",
    ("nic-reset-triggered", "warning", "Trigger reset is on"): "",
    ("nic-missing-interrupt", "warning", "Potential MSIX issue"): (
        _DEVICE + r"Potential MSIX issue on (?:Rx|Tx) side Queue = (?P<queue>\d+)"
    ),
    ("nic-health", "warning", "device's health compromised - reached miss count"): "",
    ("nic-queue-kicked", "warning", "Kicking queue"): _DEVICE + r"Kicking queue (?P<queue>\d+)",
    # --- signs that time or interrupts were not handled as they should be ---------------------------------------------
    ("interrupt-slow", "info", "interrupt took too long"): r"perf: interrupt took too long \((?P<ns>\d+) > \d+\)",
    ("nmi-slow", "warning", "NMI handler"): r"INFO: NMI handler \((?P<comm>\S+)\) took too long to run",
    ("clock-unstable", "warning", "unstable"): (
        r"timekeeping watchdog on CPU(?P<cpu>\d+): .*unstable|Marking TSC unstable due to"
    ),
    ("softirq-pending", "warning", "softirq work is pending", "local_softirq_pending"): (
        r"NOHZ tick-stop error: local softirq work is pending|NOHZ: local_softirq_pending"
    ),
    # --- network ----------------------------------------------------------------------------------------------------
    ("conntrack-full", "critical", "table full, dropping packet", "table full in netns"): (
        r"nf_conntrack: table full(?: in netns \d+)?, dropping packet"
    ),
    # --- memory and hardware ------------------------------------------------------------------------------------------
    ("oom", "critical", "invoked oom-killer"): r"(?P<comm>.+) invoked oom-killer:",
    ("oom-kill", "critical", "Killed process"): r"Killed process (?P<pid>\d+) \((?P<comm>.+)\) total-vm",
    ("allocation-failure", "warning", "page allocation failure"): (
        r"(?:(?P<comm>[^:]+): )?page allocation failure: order:(?P<value>\d+)"
    ),
    ("gpu-xid", "critical", "NVRM: Xid"): (
        r"NVRM: Xid \((?:PCI:)?(?P<device>[0-9a-f:.]+)\): (?P<value>\d+)(?:, pid=(?P<pid>\d+))?"
    ),
    ("memory-error", "warning", "EDAC MC"): r"EDAC (?P<device>MC\d+): ",
    ("machine-check", "critical", "[Hardware Error]"): r"\[Hardware Error\]: Machine check",
}

SIGNATURES = tuple(
    Signature(kind, severity, tuple(literals), re.compile(pattern or _DEVICE + re.escape(literals[0])))
    for (kind, severity, *literals), pattern in (_STARVATION | _OTHERS).items()
)
STARVATION_KINDS = frozenset(kind for kind, *_ in _STARVATION)

_BY_LITERAL = tuple((literal, signature) for signature in SIGNATURES for literal in signature.literals)
# The longest literal: how much of each half of a wrapped line, around the wrap, has to be searched.
LONGEST_LITERAL = max(len(literal) for literal, _ in _BY_LITERAL)
_LITERALS = tuple(literal for literal, _ in _BY_LITERAL)
_SECONDS = {"value": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_LARGEST = {"queue": 0xFFFF, "cpu": 0xFFFF, "pid": 0x7FFFFFFF}


def hints(text: str) -> bool:
    """Whether a text contains the literal of any signature, however the rest of it reads."""
    for literal in _LITERALS:  # noqa: SIM110 - any() over a generator takes three times as long
        if literal in text:
            return True
    return False


def recognise(text: str) -> Recognised | None:
    """Parse a kernel-log line; None when no signature matches it."""
    for literal, signature in _BY_LITERAL:
        if literal in text:
            match = signature.pattern.search(text)
            if match:
                return Recognised(signature.kind, signature.severity, _fields(match.groupdict()))
    return None


def _fields(groups: dict[str, str | None]) -> dict[str, str | int | float]:
    fields: dict[str, str | int | float] = {}
    for group, text in groups.items():
        if text is None:
            continue
        # A column may have two groups in one pattern: `us` and `us_2`.
        name = group.removesuffix("_2")
        if name in _SECONDS:
            fields["value"] = int(text) * _SECONDS[name]
        elif name in _LARGEST:
            number = int(text)
            if 0 <= number <= _LARGEST[name]:
                fields[name] = number
        else:
            fields[name] = text.strip()
    return fields
