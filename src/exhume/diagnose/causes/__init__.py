"""The causes, one file each: a case in, a finding or the reason against it out. They don't know each other.

Most are asked in any order. The last ones look at what nobody else explained, so they come when the others are done.
"""

from collections.abc import Callable

from exhume.diagnose.causes import (
    audit_storm,
    cfs_throttling,
    cgroup_excess,
    compaction_thp,
    conntrack_pressure,
    cpu_steal,
    crash_loop,
    fork_storm,
    iptables_churn,
    ipvs_estimation,
    irq_imbalance,
    memory_reclaim,
    mount_storm,
    negative_dentries,
    netns_cleanup,
    numa_balancing,
    oom_thrash,
    page_fault_storm,
    rt_hog,
    softirq_storm,
    spinlock_contention,
    unknown_kernel_path,
    user_hog,
    workqueue_hog,
    writeback_storm,
    zombie_memcgs,
)
from exhume.diagnose.evidence.builder import Found
from exhume.diagnose.evidence.case import Case
from exhume.model.finding import RuledOut

Examine = Callable[[Case], Found | RuledOut]

CAUSES: dict[str, Examine] = {
    "negative-dentries": negative_dentries.examine,
    "mount-storm": mount_storm.examine,
    "fork-storm": fork_storm.examine,
    "crash-loop": crash_loop.examine,
    "page-fault-storm": page_fault_storm.examine,
    "writeback-storm": writeback_storm.examine,
    "compaction-thp": compaction_thp.examine,
    "numa-balancing": numa_balancing.examine,
    "audit-storm": audit_storm.examine,
    "zombie-memcgs": zombie_memcgs.examine,
    "netns-cleanup": netns_cleanup.examine,
    "ipvs-estimation": ipvs_estimation.examine,
    "conntrack-pressure": conntrack_pressure.examine,
    "iptables-churn": iptables_churn.examine,
    "softirq-storm": softirq_storm.examine,
    "irq-imbalance": irq_imbalance.examine,
    "cgroup-excess": cgroup_excess.examine,
    "memory-reclaim": memory_reclaim.examine,
    "oom-thrash": oom_thrash.examine,
    "cfs-throttling": cfs_throttling.examine,
    "rt-hog": rt_hog.examine,
    "workqueue-hog": workqueue_hog.examine,
    "spinlock-contention": spinlock_contention.examine,
    "cpu-steal": cpu_steal.examine,
}
LAST: dict[str, Examine] = {
    "user-hog": user_hog.examine,
    "unknown-kernel-path": unknown_kernel_path.examine,
}
