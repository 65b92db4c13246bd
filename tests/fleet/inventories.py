"""Inventories of made-up nodes: two of one image, on one of which the bootstrap failed."""

from dataclasses import replace

from exhume.model.audit import Condition, Exit, History, Manager, Service, Wants
from exhume.model.inventory import (
    Boot,
    Cgroups,
    Cloud,
    Image,
    Inventory,
    Kernel,
    Limits,
    MountPoint,
    Nic,
    OsRelease,
    Outcome,
    Packages,
    assemble,
)

NOW = 1_763_427_600 * 10**9
BOOTSTRAP, AGENT, KUBELET = "quux-bootstrap.service", "frob-agent.service", "kubelet.service"


def unit(name: str, state: str = "active", **others) -> Service:
    return Service(Manager.SYSTEMD, name, name, state=state, **others)


def crash_loop(name: str, restarts: int = 900, now: int = NOW) -> Service:
    ends = tuple(Exit(now - ago * 10**10, code=5) for ago in range(1, 6))
    history = History("journal", 24.0, 900, 900, 37.5, ends)
    return unit(*(name, "activating"), detail="auto-restart", restarts=restarts, last_exit=ends[0], history=history)


def node(name: str = "ip-10-0-1-17", *, bootstrap: bool = True, **others) -> Inventory:
    """A node; where the bootstrap failed, the agent never started."""
    units = [unit(KUBELET, age_s=9e5), unit("cron.service", age_s=9e5)]
    if bootstrap:
        units += [unit(BOOTSTRAP, detail="exited"), crash_loop(AGENT)]
    else:
        units += [
            unit(BOOTSTRAP, "failed", result="exit-code", last_exit=Exit(NOW - 10**12, code=22)),
            unit(AGENT, "inactive", enabled="enabled", wants=Wants(failed=(BOOTSTRAP,)), result="dependency"),
        ]
    values = {
        "os": OsRelease("ubuntu", "20.04", timezone="Etc/UTC"),
        "image": Image("dl-base", "7"),
        "kernel": Kernel(
            "5.4.0-1103", cmdline=("root=UUID=6f1c5a9e-0000-4000-8000-000000000001", "ro", "console=ttyS0")
        ),
        "packages": Packages("dpkg", {"bash": "5.0", "linux-image-5.4.0-1103": "5.4.0"}),
        "sysctls": {"vm.swappiness": "60", "net.core.somaxconn": "4096"},
        "limits": Limits({"open files": "1024:524288"}),
        "mounts": (MountPoint("/", "ext4", "/dev/nvme0n1p1", ("rw", "relatime")),),
        "modules": {"ena": "2.11.0g", "xfs": ""},
        "nics": (Nic("ens5", "ena", "2.11.0g", "1.0", 9001, queues={"0": "0", "1": "1"}),),
        "cgroups": Cgroups("v1"),
        "units": tuple(units),
        "containers": (),
        "boot": Boot(
            *(NOW - 7 * 10**14, 7e5),
            bootstrap=Outcome.OK if bootstrap else Outcome.FAILED,
            because=() if bootstrap else (BOOTSTRAP,),
        ),
        "cloud": Cloud("aws", "us-east-1", "us-east-1a", "p4d.24xlarge", "ami-1"),
    }
    return assemble(name, NOW, values | others)


def condition_unit(name: str) -> Service:
    return replace(unit(name, "inactive"), conditions=(Condition("ConditionPathExists", "/etc/x", False),))
