"""Where the controllers of cgroups are mounted on the recorded node, for the commands of remedies."""

import posixpath

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.facts.leaks import MEMORY_V1, cgroup_counts

V1, V2 = 1, 2
_USUAL_ROOT = "/sys/fs/cgroup"


def controller_root(case: Case, controller: str) -> tuple[int, str]:
    """The version of the cgroups with a controller, and their mount point. Only that of `cpu` is recorded: v1 mounts
    its controllers next to each other. Early recordings don't have it: if v1 has memory, it has the others too."""
    version, root = case.facts.cpu_cgroup_version or V2, case.facts.cpu_cgroups
    if root is None:
        is_v1 = any(counts.hierarchy == MEMORY_V1 for counts in cgroup_counts(case))
        version, root = (V1, f"{_USUAL_ROOT}/cpu") if is_v1 else (V2, _USUAL_ROOT)
    if version == V1 and controller != "cpu":
        root = posixpath.join(posixpath.dirname(root.rstrip("/")), controller)
    return version, root
