"""The inventory of the synthetic node: the machine of the incident, with the agent that crash-loops on it."""

from exhume.lab.synth.world import DEVICE, LEAKED_A_MINUTE, NIC_QUEUES, RESTART_EVERY_NS, World
from exhume.model.audit import Exit, History, Manager, Service
from exhume.model.inventory import (
    Boot,
    CgroupMount,
    Cgroups,
    Cloud,
    Image,
    Kernel,
    Missing,
    Nic,
    OsRelease,
    Outcome,
    Packages,
    Reason,
)
from exhume.model.inventory.codec import missing_text, section_text
from exhume.model.tables import Columns

# Like the recorder, write everything once per hour.
EVERY_MINUTES = 60


def inventory_rows(world: World, minute: int) -> Columns | None:
    """The rows of a minute; None if it has none."""
    if minute % EVERY_MINUTES:
        return None
    time = world.timeline.start_of(minute)
    sections = {
        "os": OsRelease("ubuntu", "20.04", "Ubuntu 20.04.6 LTS"),
        "image": Image("deep-learning-base", "20250214", "/etc/image-id"),
        "kernel": Kernel(world.facts.kernel, "#1 SMP", ("ro", "console=ttyS0")),
        "packages": Packages(
            "dpkg", {"ecs-init": "1.75.0-1", "docker-ce": "5:24.0.7-1", "systemd": "245.4-4ubuntu3.24"}
        ),
        "sysctls": {"vm.swappiness": "60", "net.core.somaxconn": "4096"},
        "nics": (
            Nic(
                *(DEVICE, "ena", "2.11.0g"),
                mtu=9001,
                rx_queues=NIC_QUEUES,
                tx_queues=NIC_QUEUES,
                queues={str(queue): str(core) for queue, core in enumerate(world.queue_core.tolist())},
            ),
        ),
        "cgroups": Cgroups("v1", (CgroupMount(1, "/sys/fs/cgroup/memory", ("memory",)),), ("docker", "kubepods")),
        "units": _units(world.timeline.wall(time), time),
        "boot": Boot(
            booted_at=world.timeline.wall(0), uptime_s=round(time / 1e9, 2), system="degraded", bootstrap=Outcome.OK
        ),
        "cloud": Cloud("aws", "us-east-1", "us-east-1a", "p4d.24xlarge", "ami-0a1b2c3d4e5f60718"),
    }
    unread = Missing("containers", Reason.ABSENT, "no container runtime has a socket here")
    return {
        "time": [time] * (len(sections) + 1),
        "section": [*sections, unread.section],
        "content": [*(section_text(name, value) for name, value in sections.items()), None],
        "missing": [*(None for _ in sections), missing_text((unread,))],
    }


def _units(wall: int, time: int) -> tuple[Service, ...]:
    """The agent is started at the pace of its containers, and exits seconds later."""
    ends = tuple(Exit(wall - ago * RESTART_EVERY_NS, code=5) for ago in range(1, 5))
    starts = 24 * 60 * LEAKED_A_MINUTE
    return (
        Service(
            *(Manager.SYSTEMD, "ecs.service", "ecs.service"),
            state="activating",
            detail="auto-restart",
            result="exit-code",
            restarts=time // RESTART_EVERY_NS,
            restart_policy="always",
            last_exit=ends[0],
            enabled="enabled",
            history=History("journal", 24.0, starts, starts, starts / 24, ends, longest_s=3.2),
        ),
        Service(
            *(Manager.SYSTEMD, "node-bootstrap.service", "node-bootstrap.service"), state="active", detail="exited"
        ),
        Service(*(Manager.SYSTEMD, "kubelet.service", "kubelet.service"), state="active", detail="running", age_s=6e5),
    )
