"""An audit names the owners of pods that the recorder learned from the cluster's API."""

from pathlib import Path

from tests.diagnose.scenes import Scene

from exhume.collect.containers.owner import Workload
from exhume.model.audit import Manager, Service
from exhume.remedy.audit import with_recorded_owners

JOB = Service(
    manager=Manager.CRI,
    id="ab" * 32,
    name="batch/nightly-29412640-x2c4v/main",
    state="exited",
    pod="batch/nightly-29412640-x2c4v",
    owner="job batch/nightly-29412640",
    workload="job/nightly-29412640",
)
UNIT = Service(manager=Manager.SYSTEMD, id="a.service", name="a.service", state="active")


def recorded(path: Path, source: str, kind: str) -> list[Service]:
    scene = Scene(cores=1, seconds=5)
    scene.event(1, kind, "x", "info", source=source, pod="u-1", pod_name=JOB.pod, owner="cronjob/nightly")
    return with_recorded_owners([JOB, UNIT], scene.write(path))


def test_the_owner_is_that_of_the_api(tmp_path: Path) -> None:
    job, unit = recorded(tmp_path, "kubernetes", "pod-owner")
    assert (job.workload, job.owner, unit) == ("cronjob/nightly", "cron job batch/nightly", UNIT)
    commands = Workload.parse(job.pod or "", job.workload).stop_commands
    assert [each.split()[3:6] for each in commands] == [
        ["patch", "cronjob", "nightly"],
        ["delete", "job", "nightly-29412640"],
    ]


def test_labels_of_containers_were_read_by_the_audit_itself(tmp_path: Path) -> None:
    assert recorded(tmp_path, "cri", "container-start") == [JOB, UNIT]
    assert with_recorded_owners([JOB], None) == [JOB]
