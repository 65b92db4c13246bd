"""What the kernel says when a core is starved: the one table of log lines that the recorder recognises.

To add a line: one `Signature` with a literal part that every such line has (it is what most lines are turned away by)
and a pattern. Named groups become columns of the events table: device, queue, cpu, pid, comm, value.
"""

import re
from dataclasses import dataclass, field

PLAIN_KIND = "kernel-line"

# A network driver's lines begin with its name, the bus address and the interface; the last of them names the device.
_DEVICE = r"(?:(?P<device>\S+)(?: \([^)]*\))?: )?"


@dataclass(frozen=True, slots=True)
class Signature:
    """One recognised line. `value` is multiplied by `scale` into `unit`."""

    kind: str
    severity: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    starvation: bool = False
    unit: str = ""
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a line says."""

    kind: str
    severity: str
    starvation: bool
    fields: dict[str, str | int | float] = field(default_factory=dict)


def _line(
    kind: str,
    severity: str,
    literals: str | tuple[str, ...],
    pattern: str,
    *,
    starvation: bool = False,
    unit: str = "",
    scale: float = 1.0,
) -> Signature:
    literals = (literals,) if isinstance(literals, str) else literals
    return Signature(kind, severity, literals, re.compile(pattern), starvation, unit, scale)


SIGNATURES: tuple[Signature, ...] = (
    # --- ENA: a queue whose softirq did not run -------------------------------------------------------------------
    _line(
        "nic-tx-paused",
        "critical",
        "is paused for too long",
        _DEVICE + r"TX q (?P<queue>\d+) is paused for too long \(threshold \d+\)\. "
        r"(?:Time since last napi (?P<value>\d+) usec|usecs since napi (?P<value_2>\d+))\. napi scheduled: [01]"
        r"(?:\. napi CPU: (?P<cpu>-?\d+))?(?:\. msecs since (?:last )?interrupt: \d+)?",
        starvation=True,
        unit="s",
        scale=1e-6,
    ),
    _line(
        "nic-napi-starved",
        "critical",
        "napi handler hasn't been called",
        _DEVICE + r"napi handler hasn't been called for a long time but is scheduled",
        starvation=True,
    ),
    # ENA 2.17.0 prints the two numbers in the wrong order, so neither is taken for a queue or a core.
    _line("nic-napi-core", "info", "[2/2] qid:", r"\[2/2\] qid: -?\d+, napi CPU: -?\d+"),
    _line(
        "nic-tx-lost-completions",
        "critical",
        ("ost TX completion", "lost tx completion"),
        _DEVICE + r"(?:Lost TX completions are above (?:the )?threshold"
        r"|The number of lost tx completions? is above the threshold) \((?P<value>\d+) > \d+\)",
        starvation=True,
        unit="completions",
    ),
    _line(
        "nic-tx-missed-completion",
        "warning",
        ("wasn't completed on time", "TX hasn't completed"),
        _DEVICE
        + r"(?:Found a Tx that wasn't completed on time|TX hasn't completed), qid:? (?P<queue>\d+), index:? \d+",
        starvation=True,
    ),
    _line(
        "nic-tx-missed-completion",
        "warning",
        "missed TX completions",
        _DEVICE + r"(?P<value>\d+) new missed TX completions, qid: (?P<queue>\d+)",
        starvation=True,
        unit="completions",
    ),
    _line(
        "nic-keep-alive-timeout",
        "critical",
        "Keep alive watchdog timeout",
        _DEVICE + r"Keep alive watchdog timeout(?:, (?P<value>\d+) msecs since last keep alive)?\.",
        starvation=True,
        unit="s",
        scale=1e-3,
    ),
    _line(
        "nic-reset",
        "critical",
        "Device reset completed",
        _DEVICE + r"Device reset completed(?: successfully|, status: (?P<value>-?\d+))(?:, Driver info: .*)?",
        starvation=True,
        unit="status",
    ),
    _line("nic-reset-triggered", "warning", "Trigger reset is on", _DEVICE + r"Trigger reset is on"),
    _line(
        "nic-missing-interrupt",
        "warning",
        "Potential MSIX issue",
        _DEVICE + r"Potential MSIX issue on (?:Rx|Tx) side Queue = (?P<queue>\d+)",
    ),
    _line("nic-tx-timeout", "critical", "Transmit time out", _DEVICE + r"Transmit time out", starvation=True),
    # --- every driver: the kernel's own watchdog. The core that it names runs the timer; it is not the starved one ---
    _line(
        "nic-watchdog",
        "critical",
        "NETDEV WATCHDOG",
        r"(?:(?P<device_2>\S+): )?NETDEV WATCHDOG: (?:(?P<device>\S+) \([^)]+\): |CPU: \d+: )"
        r"transmit queue (?P<queue>\d+) timed out(?: (?P<value>\d+) ms)?",
        starvation=True,
        unit="s",
        scale=1e-3,
    ),
    # --- mlx5, bnxt, virtio_net, and the drivers that log the same -------------------------------------------------
    _line(
        "nic-tx-timeout",
        "critical",
        "TX timeout on queue",
        _DEVICE + r"TX timeout on queue: (?P<queue>\d+), (?i:sq): [^\s,]+(?:,.*? (?P<value>\d+) usecs ago)?",
        starvation=True,
        unit="s",
        scale=1e-6,
    ),
    _line("nic-tx-timeout", "critical", "TX timeout detected", _DEVICE + r"TX timeout detected", starvation=True),
    _line(
        "nic-health",
        "warning",
        "health compromised",
        _DEVICE + r"device's health compromised - reached miss count",
    ),
    # --- ixgbe, i40e, ice ---------------------------------------------------------------------------------------------
    _line("nic-tx-hang", "critical", "Detected Tx Unit Hang", _DEVICE + r"Detected Tx Unit Hang", starvation=True),
    _line(
        "nic-tx-hang",
        "critical",
        "resetting adapter",
        _DEVICE + r"tx hang (?P<value>\d+) detected on queue (?P<queue>\d+), resetting adapter",
        starvation=True,
        unit="hangs",
    ),
    _line(
        "nic-tx-timeout",
        "critical",
        "due to tx timeout",
        _DEVICE + r"initiating reset due to tx timeout",
        starvation=True,
    ),
    _line(
        "nic-tx-timeout", "critical", "tx_timeout: VSI_", _DEVICE + r"tx_timeout: VSI_(?:seid|num): ", starvation=True
    ),
    _line(
        "nic-tx-timeout",
        "critical",
        "tx_timeout recovery",
        _DEVICE + r"tx_timeout recovery level (?P<value>\d+), (?:hung_queue|txqueue) (?P<queue>\d+)",
        starvation=True,
        unit="level",
    ),
    # --- gve ----------------------------------------------------------------------------------------------------------
    _line(
        "nic-tx-timeout",
        "critical",
        "Timeout on tx queue",
        _DEVICE + r"Timeout on tx queue, (?P<queue>\d+)",
        starvation=True,
    ),
    _line("nic-queue-kicked", "warning", "Kicking queue", _DEVICE + r"Kicking queue (?P<queue>\d+)"),
    _line("nic-reset", "critical", "Performing reset", _DEVICE + r"Performing reset", starvation=True),
    # --- lockups and stalls: from 10 s (hard), 20 s (soft) and 21 s (RCU) on ------------------------------------------
    _line(
        "soft-lockup",
        "critical",
        "soft lockup",
        r"BUG: soft lockup - CPU#(?P<cpu>\d+) stuck for (?P<value>\d+)s! \[(?P<comm>.+):(?P<pid>\d+)\]",
        starvation=True,
        unit="s",
    ),
    _line(
        "hard-lockup",
        "critical",
        "hard LOCKUP",
        r"Watchdog detected hard LOCKUP on cpu (?P<cpu>\d+)",
        starvation=True,
    ),
    _line(
        "rcu-stall",
        "critical",
        " stall",
        r"INFO: (?P<comm>\S+) (?:self-detected stall on CPU|detected (?:expedited )?stalls on (?:CPUs/)?tasks)",
        starvation=True,
    ),
    _line(
        "rcu-starved",
        "critical",
        "kthread starved",
        r"(?P<comm>\S+) kthread starved for (?P<value>\d+) jiffies!.*->cpu=(?P<cpu>\d+)",
        starvation=True,
        unit="jiffies",
    ),
    _line(
        "hung-task",
        "warning",
        "blocked for more than",
        r"INFO: task (?P<comm>.+):(?P<pid>\d+) blocked for more than (?P<value>\d+) seconds",
        starvation=True,
        unit="s",
    ),
    _line(
        "workqueue-hog",
        "warning",
        "hogged CPU",
        r"workqueue: (?P<comm>\S+)(?: \[\S+\])? hogged CPU for >(?P<value>\d+)us \d+ times",
        starvation=True,
        unit="s",
        scale=1e-6,
    ),
    _line("workqueue-lockup", "critical", "workqueue lockup", r"BUG: workqueue lockup - pool", starvation=True),
    _line("rt-throttling", "warning", "RT throttling", r"sched: RT throttling activated", starvation=True),
    # --- signs that time or interrupts were not handled as they should be ---------------------------------------------
    _line(
        "interrupt-slow",
        "info",
        "interrupt took too long",
        r"perf: interrupt took too long \((?P<value>\d+) > \d+\)",
        unit="s",
        scale=1e-9,
    ),
    _line("nmi-slow", "warning", "NMI handler", r"INFO: NMI handler \((?P<comm>\S+)\) took too long to run"),
    _line(
        "clock-unstable",
        "warning",
        "unstable",
        r"timekeeping watchdog on CPU(?P<cpu>\d+): .*unstable|Marking TSC unstable due to",
    ),
    _line(
        "softirq-pending",
        "warning",
        ("softirq work is pending", "local_softirq_pending"),
        r"NOHZ tick-stop error: local softirq work is pending|NOHZ: local_softirq_pending",
    ),
    # --- network ----------------------------------------------------------------------------------------------------
    _line(
        "conntrack-full",
        "critical",
        ("table full, dropping packet", "table full in netns"),
        r"nf_conntrack: table full(?: in netns \d+)?, dropping packet",
    ),
    # --- memory and hardware ------------------------------------------------------------------------------------------
    _line("oom", "critical", "invoked oom-killer", r"(?P<comm>.+) invoked oom-killer:"),
    _line("oom-kill", "critical", "Killed process", r"Killed process (?P<pid>\d+) \((?P<comm>.+)\) total-vm"),
    _line(
        "allocation-failure",
        "warning",
        "page allocation failure",
        r"(?:(?P<comm>[^:]+): )?page allocation failure: order:(?P<value>\d+)",
        unit="order",
    ),
    _line(
        "gpu-xid",
        "critical",
        "NVRM: Xid",
        r"NVRM: Xid \((?:PCI:)?(?P<device>[0-9a-f:.]+)\): (?P<value>\d+)(?:, pid=(?P<pid>\d+))?",
        unit="xid",
    ),
    _line("memory-error", "warning", "EDAC MC", r"EDAC (?P<device>MC\d+): "),
    _line("machine-check", "critical", "[Hardware Error]", r"\[Hardware Error\]: Machine check"),
)

STARVATION_KINDS = frozenset(signature.kind for signature in SIGNATURES if signature.starvation)

_BY_LITERAL = tuple((literal, signature) for signature in SIGNATURES for literal in signature.literals)
# The longest literal: a wrapped line's halves have to be looked at this far from where they meet.
LONGEST_LITERAL = max(len(literal) for literal, _ in _BY_LITERAL)
_LITERALS = tuple(literal for literal, _ in _BY_LITERAL)
_LARGEST = {"queue": 0xFFFF, "cpu": 0xFFFF, "pid": 0x7FFFFFFF}


def hints(text: str) -> bool:
    """Whether a text has the literal part of any signature, however the rest of it reads."""
    for literal in _LITERALS:  # noqa: SIM110 - any() over a generator takes three times as long
        if literal in text:
            return True
    return False


def recognise(text: str) -> Recognised | None:
    """What a kernel-log line says, or None for one that is in no signature."""
    for literal, signature in _BY_LITERAL:
        if literal in text:
            match = signature.pattern.search(text)
            if match:
                return Recognised(
                    signature.kind, signature.severity, signature.starvation, _fields(signature, match.groupdict())
                )
    return None


def _fields(signature: Signature, groups: dict[str, str | None]) -> dict[str, str | int | float]:
    fields: dict[str, str | int | float] = {}
    for group, text in groups.items():
        if text is None:
            continue
        # Two places in one pattern for the same column: `value` and `value_2`.
        name = group.removesuffix("_2")
        if name == "value":
            fields[name] = int(text) * signature.scale
        elif name in _LARGEST:
            number = int(text)
            if 0 <= number <= _LARGEST[name]:
                fields[name] = number
        else:
            fields[name] = text.strip()
    return fields
