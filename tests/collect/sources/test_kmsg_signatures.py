"""Every kernel-log line that the recorder recognises, as drivers and the kernel print them."""

import pytest

from exhume.collect.sources.kmsg_signatures import SIGNATURES, STARVATION_KINDS, recognise

ENA = "ena 0000:00:05.0 eth0: "

LINES: list[tuple[str, str, dict]] = [
    # the incident's own lines
    (
        ENA + "TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1",
        "nic-tx-paused",
        {"device": "eth0", "queue": 5, "value": 6.596},
    ),
    (
        ENA + "napi handler hasn't been called for a long time but is scheduled",
        "nic-napi-starved",
        {"device": "eth0"},
    ),
    (
        ENA + "Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g",
        "nic-reset",
        {"device": "eth0"},
    ),
    # other generations of the driver
    (
        "ena 0000:00:06.0 ens6: TX q 17 is paused for too long (threshold 5000000). usecs since napi 5120000. "
        "napi scheduled: 1. napi CPU: 39. msecs since last interrupt: 5120",
        "nic-tx-paused",
        {"device": "ens6", "queue": 17, "cpu": 39, "value": 5.12},
    ),
    (
        ENA + "TX q 1 is paused for too long (threshold 5000000). usecs since napi 7. napi scheduled: 0. napi CPU: -1",
        "nic-tx-paused",
        {"device": "eth0", "queue": 1, "value": 7e-6},
    ),
    (ENA + "[2/2] qid: 12, napi CPU: 3", "nic-napi-core", {}),
    (
        ENA + "Lost TX completions are above the threshold (146 > 128). Completion transmission timeout: 5000.",
        "nic-tx-lost-completions",
        {"device": "eth0", "value": 146},
    ),
    (
        "ena 0000:00:05.0: Lost TX completions are above threshold (130 > 128)",
        "nic-tx-lost-completions",
        {"device": "0000:00:05.0", "value": 130},
    ),
    (
        ENA + "The number of lost tx completion is above the threshold (129 > 128). Reset the device",
        "nic-tx-lost-completions",
        {"device": "eth0", "value": 129},
    ),
    (
        ENA + "The number of lost tx completions is above the threshold (129 > 128). Reset the device",
        "nic-tx-lost-completions",
        {"device": "eth0", "value": 129},
    ),
    (
        ENA + "Found a Tx that wasn't completed on time, qid 3, index 512.",
        "nic-tx-missed-completion",
        {"device": "eth0", "queue": 3},
    ),
    (
        ENA + "TX hasn't completed, qid: 4, index: 9. 5200 usecs have passed since last napi execution.",
        "nic-tx-missed-completion",
        {"device": "eth0", "queue": 4},
    ),
    (
        ENA + "33 new missed TX completions, qid: 6",
        "nic-tx-missed-completion",
        {"device": "eth0", "queue": 6, "value": 33},
    ),
    (ENA + "Keep alive watchdog timeout.", "nic-keep-alive-timeout", {"device": "eth0"}),
    (
        ENA + "Keep alive watchdog timeout, 6012 msecs since last keep alive.",
        "nic-keep-alive-timeout",
        {"device": "eth0", "value": 6.012},
    ),
    (ENA + "Device reset completed, status: -19", "nic-reset", {"device": "eth0", "value": -19}),
    (ENA + "Transmit time out", "nic-tx-timeout", {"device": "eth0"}),
    (ENA + "Trigger reset is on", "nic-reset-triggered", {"device": "eth0"}),
    (ENA + "Potential MSIX issue on Tx side Queue = 7. Reset the device", "nic-missing-interrupt", {"queue": 7}),
    (ENA + "Potential MSIX issue on Rx side Queue = 0. Reset the device", "nic-missing-interrupt", {"queue": 0}),
    # the kernel's watchdog: the core in the line is not the starved one
    ("NETDEV WATCHDOG: eth0 (ena): transmit queue 5 timed out", "nic-watchdog", {"device": "eth0", "queue": 5}),
    (
        "NETDEV WATCHDOG: enp1s0 (mlx5_core): transmit queue 12 timed out 15123 ms",
        "nic-watchdog",
        {"device": "enp1s0", "queue": 12, "value": 15.123},
    ),
    (
        ENA + "NETDEV WATCHDOG: CPU: 39: transmit queue 5 timed out 5120 ms",
        "nic-watchdog",
        {"device": "eth0", "queue": 5, "value": 5.12},
    ),
    # other drivers
    ("mlx5_core 0000:05:00.0 eth1: TX timeout detected", "nic-tx-timeout", {"device": "eth1"}),
    (
        "mlx5_core 0000:05:00.0 eth1: TX timeout on queue: 3, SQ: 0x11ec, CQ: 0x1f, SQ Cons: 0x0 SQ Prod: 0x1, "
        "usecs since last trans: 15000000",
        "nic-tx-timeout",
        {"device": "eth1", "queue": 3},
    ),
    (
        "mlx5_core 0000:05:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
        "nic-health",
        {},
    ),
    ("ixgbe 0000:01:00.0 eth0: Detected Tx Unit Hang", "nic-tx-hang", {"device": "eth0"}),
    (
        "ixgbe 0000:01:00.0 eth0: tx hang 2 detected on queue 6, resetting adapter",
        "nic-tx-hang",
        {"device": "eth0", "queue": 6, "value": 2},
    ),
    ("ixgbe 0000:01:00.0 eth0: initiating reset due to tx timeout", "nic-tx-timeout", {"device": "eth0"}),
    (
        "i40e 0000:3d:00.0 eno1: tx_timeout: VSI_seid: 390, Q 4, NTC: 0x1a, HWB: 0x1a, NTU: 0x2c, TAIL: 0x2c, INT: 0x1",
        "nic-tx-timeout",
        {"device": "eno1"},
    ),
    (
        "i40e 0000:3d:00.0 eno1: tx_timeout recovery level 1, hung_queue 4",
        "nic-tx-timeout",
        {"device": "eno1", "queue": 4, "value": 1},
    ),
    ("ice 0000:3b:00.0 ens1f0: tx_timeout: VSI_num: 6, Q 2, NTC: 0x0", "nic-tx-timeout", {"device": "ens1f0"}),
    (
        "ice 0000:3b:00.0 ens1f0: tx_timeout recovery level 2, txqueue 2",
        "nic-tx-timeout",
        {"device": "ens1f0", "queue": 2, "value": 2},
    ),
    (
        "virtio_net virtio2 eth0: TX timeout on queue: 1, sq: output.1, vq: 0x3, name: output.1, 5012345 usecs ago",
        "nic-tx-timeout",
        {"device": "eth0", "queue": 1, "value": 5.012345},
    ),
    ("gve 0000:00:04.0 eth0: Timeout on tx queue, 8", "nic-tx-timeout", {"device": "eth0", "queue": 8}),
    ("gve 0000:00:04.0 eth0: Kicking queue 8", "nic-queue-kicked", {"device": "eth0", "queue": 8}),
    ("gve 0000:00:04.0: Performing reset", "nic-reset", {"device": "0000:00:04.0"}),
    ("bnxt_en 0000:19:00.0 eno1: TX timeout detected, starting reset task!", "nic-tx-timeout", {"device": "eno1"}),
    # lockups and stalls
    (
        "watchdog: BUG: soft lockup - CPU#39 stuck for 22s! [kubelet:4242]",
        "soft-lockup",
        {"cpu": 39, "value": 22, "comm": "kubelet", "pid": 4242},
    ),
    (
        "watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [kworker/3:1:77]",
        "soft-lockup",
        {"cpu": 3, "value": 23, "comm": "kworker/3:1", "pid": 77},
    ),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 7", "hard-lockup", {"cpu": 7}),
    ("CPU0: Watchdog detected hard LOCKUP on cpu 17", "hard-lockup", {"cpu": 17}),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", "rcu-stall", {"comm": "rcu_sched"}),
    ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "rcu-stall", {"comm": "rcu_preempt"}),
    (
        "rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 39-... } 21 jiffies s: 2425 root: 0x2/.",
        "rcu-stall",
        {"comm": "rcu_sched"},
    ),
    ("INFO: rcu_tasks detected stalls on tasks:", "rcu-stall", {"comm": "rcu_tasks"}),
    (
        "rcu: rcu_sched kthread starved for 5249 jiffies! g13 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x0 ->cpu=12",
        "rcu-starved",
        {"comm": "rcu_sched", "value": 5249, "cpu": 12},
    ),
    (
        "INFO: task kworker/u4:2:123 blocked for more than 120 seconds.",
        "hung-task",
        {"comm": "kworker/u4:2", "pid": 123, "value": 120},
    ),
    (
        "workqueue: inode_switch_wbs_work_fn hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
        "workqueue-hog",
        {"comm": "inode_switch_wbs_work_fn", "value": 0.01},
    ),
    ("BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 33s!", "workqueue-lockup", {}),
    ("sched: RT throttling activated", "rt-throttling", {}),
    ("nf_conntrack: table full, dropping packet", "conntrack-full", {}),
    ("nf_conntrack: nf_conntrack: table full, dropping packet", "conntrack-full", {}),
    ("nf_conntrack: table full in netns 4026532261, dropping packet", "conntrack-full", {}),
    # time and interrupts
    (
        "perf: interrupt took too long (2510 > 2500), lowering kernel.perf_event_max_sample_rate to 79000",
        "interrupt-slow",
        {"value": 2510e-9},
    ),
    (
        "INFO: NMI handler (perf_event_nmi_handler) took too long to run: 1.277 msecs",
        "nmi-slow",
        {"comm": "perf_event_nmi_handler"},
    ),
    (
        "clocksource: timekeeping watchdog on CPU1: Marking clocksource 'tsc' as unstable because of its skew:",
        "clock-unstable",
        {"cpu": 1},
    ),
    ("tsc: Marking TSC unstable due to clocksource watchdog", "clock-unstable", {}),
    ("NOHZ tick-stop error: local softirq work is pending, handler #08!!!", "softirq-pending", {}),
    ("NOHZ: local_softirq_pending 08", "softirq-pending", {}),
    # memory and hardware
    (
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000",
        "oom",
        {"comm": "python3"},
    ),
    (
        "Memory cgroup out of memory: Killed process 991 (ray::train (x)) total-vm:1234kB, anon-rss:1kB",
        "oom-kill",
        {"pid": 991, "comm": "ray::train (x)"},
    ),
    (
        "kworker/0:1: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP)",
        "allocation-failure",
        {"value": 4},
    ),
    (
        "NVRM: Xid (PCI:0000:10:1c): 79, pid=1234, GPU has fallen off the bus.",
        "gpu-xid",
        {"device": "0000:10:1c", "value": 79, "pid": 1234},
    ),
    ("NVRM: Xid (0000:10:1c): 48, Double bit", "gpu-xid", {"device": "0000:10:1c", "value": 48}),
    ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0", "memory-error", {"device": "MC0"}),
    ("mce: [Hardware Error]: Machine check events logged", "machine-check", {}),
]


@pytest.mark.parametrize(("text", "kind", "fields"), LINES, ids=[f"{line[1]}-{i}" for i, line in enumerate(LINES)])
def test_a_line_is_recognised_with_its_fields(text: str, kind: str, fields: dict) -> None:
    known = recognise(text)
    assert known is not None
    assert known.kind == kind
    for name, value in fields.items():
        expected = pytest.approx(value) if isinstance(value, float) else value
        assert known.fields.get(name) == expected
    if "cpu" not in fields:
        assert "cpu" not in known.fields


@pytest.mark.parametrize(("text", "kind"), [line[:2] for line in LINES])
def test_recognised_whatever_is_around_it(text: str, kind: str) -> None:
    known = recognise(f"{text} and then some")
    assert known is not None
    assert known.kind == kind


def test_every_signature_has_a_line() -> None:
    seen = {signature for text, _, _ in LINES for signature in SIGNATURES if signature.pattern.search(text)}
    assert seen == set(SIGNATURES)


def test_every_literal_is_in_a_line_of_its_signature() -> None:
    for signature in SIGNATURES:
        for literal in signature.literals:
            assert any(literal in text and signature.pattern.search(text) for text, _, _ in LINES), literal


@pytest.mark.parametrize(
    "text",
    [
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "systemd[1]: Started Session 3 of user root.",
        "ena 0000:00:05.0: Elastic Network Adapter (ENA) v2.11.0g",
        "e1000: eth0 NIC Link is Up 1000 Mbps Full Duplex",
        "watchdog: BUG: soft lockup detection disabled",
        "audit: rate limit exceeded",
        "installed kernel module",
        "",
    ],
)
def test_other_lines_are_not(text: str) -> None:
    assert recognise(text) is None


def test_which_lines_tell_of_starvation() -> None:
    assert {"nic-tx-paused", "nic-watchdog", "soft-lockup", "rcu-stall", "hung-task"} <= STARVATION_KINDS
    assert not {"oom", "gpu-xid", "machine-check", "interrupt-slow"} & STARVATION_KINDS
