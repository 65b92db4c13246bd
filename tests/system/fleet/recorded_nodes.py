"""Recordings of a small fleet with the incident in it: an agent of one image crash-loops in one zone and leaks memory
cgroups, until a walk over them holds a core. Elsewhere its bootstrap failed, or the image does not have it."""

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.diagnose.causes.test_cause_zombie_memcgs import READ, leak, zombies
from tests.diagnose.scenes import Scene
from tests.fleet.inventories import crash_loop, unit

from exhume.model.audit import Exit, Wants
from exhume.model.inventory import Boot, Cloud, Kernel, Outcome, Packages
from exhume.model.inventory.codec import section_text
from exhume.model.tables import INCIDENT

AGENT, UNIT, BOOTSTRAP = "ecs-agent", "ecs.service", "node-bootstrap.service"
SICK_IMAGE, OTHER_IMAGE, SICK_ZONE, OTHER_ZONE = "ami-0b22", "ami-0a11", "b", "a"
SECONDS, MARKED = 120, 62
_KERNELS = ("5.10.205-195", "5.10.210-201", "6.1.79-99")
_CONTAINER = "5" * 63 + "a"


@dataclass(frozen=True, slots=True)
class RecordedNode:
    """One node; `strays`: it has an incident of its own, which has nothing to do with the others'."""

    name: str
    image: str
    zone: str
    strays: bool = False

    @property
    def has_agent(self) -> bool:
        return self.image == SICK_IMAGE

    @property
    def sick(self) -> bool:
        return self.has_agent and self.zone == SICK_ZONE

    def write(self, directory: Path, wall: int) -> None:
        """Record two minutes that begin at a full one."""
        scene = Scene(2, SECONDS, wall=wall, node=self.name, boot_id=secrets.token_hex(16), kernel=_kernel(self.name))
        for section, value in self._inventory(wall).items():
            scene.row("inventory", 10, section=section, content=section_text(section, value), missing=None)
        if self.sick:
            zombies(scene, 68_680, 240)
            path = f"/docker/{_CONTAINER}/step-{_CONTAINER[:12]}"
            leak(scene, path, 1, MARKED - 4, comm="runc")
            named = {"container": _CONTAINER, "container_name": AGENT, "image": "amazon/amazon-ecs-agent:1"}
            scene.event(1, "container-start", f"{AGENT} started", severity="info", source="docker", **named)
            scene.core(1, MARKED - 2, MARKED + 6, system=990)
            scene.stack(1, MARKED - 2, MARKED + 6, 0.98, "kubelet", 77, READ)
        if self.strays:
            scene.core(0, MARKED - 2, MARKED + 6, user=990)
            scene.stack(0, MARKED - 2, MARKED + 6, 0.98, "backup", 99, ["tar:compress"])
        if self.sick or self.strays:
            scene.event(MARKED, INCIDENT, "a core is held", source="recorder", trigger="core", cpu=int(self.sick))
        scene.write(directory)

    def _inventory(self, now: int) -> dict[str, Any]:
        units = [unit("kubelet.service", age_s=9e5), unit("cron.service", age_s=9e5)]
        failed = self.has_agent and not self.sick
        if self.sick:
            units += [unit(BOOTSTRAP, detail="exited"), crash_loop(UNIT, now=now)]
        elif failed:
            ended = Exit(now - 10**12, code=22)
            waits = replace(unit(UNIT, "inactive", enabled="enabled"), wants=Wants(failed=(BOOTSTRAP,)))
            units += [unit(BOOTSTRAP, "failed", result="exit-code", last_exit=ended), waits]
        number = int(hashlib.sha256(self.name.encode()).hexdigest(), 16)
        return {
            "kernel": Kernel(_kernel(self.name)),
            "packages": Packages("rpm", {"chrony": f"4.{number % 2}", "openssl": f"3.0.{number // 7 % 3}"}),
            "units": tuple(units),
            "boot": Boot(now - 7 * 86_400 * 10**9, 6e5, bootstrap=Outcome.FAILED if failed else Outcome.OK),
            "cloud": Cloud("aws", "us-east-1", self.zone, "p4d.24xlarge", self.image),
        }


def _kernel(name: str) -> str:
    return _KERNELS[int(hashlib.sha256(name.encode()).hexdigest(), 16) % len(_KERNELS)]


def thirty_nodes() -> Iterator[RecordedNode]:
    """Ten of them sick, seven of their image elsewhere, seven of another image in their zone, and six of neither, one
    of which has trouble of its own."""
    kinds = ((10, SICK_IMAGE, SICK_ZONE), (7, SICK_IMAGE, OTHER_ZONE), (7, OTHER_IMAGE, SICK_ZONE))
    places = [(image, zone) for count, image, zone in (*kinds, (6, OTHER_IMAGE, OTHER_ZONE)) for _ in range(count)]
    for number, (image, zone) in enumerate(places):
        yield RecordedNode(f"node-{number:02d}", image, zone, strays=number == 29)
