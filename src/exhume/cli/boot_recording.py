"""The recording of this boot, for the costs of services."""

from pathlib import Path

from exhume.collect.node_root import NodeRoot
from exhume.diagnose.zombie_report import RecordedBoot
from exhume.store.read.recording import Recording


def open_recording(root: NodeRoot, directory: Path, given: bool) -> tuple[Recording | None, str]:
    """Open the recording of this boot, and a note why there is none where one was `given`. Of a node that is seen from
    elsewhere, only a recording that was given is opened."""
    if not given and not root.is_here:
        return None, ""
    found = RecordedBoot(root.host, directory)
    return found.recording, f"{found.note}: costs are those of live cgroups" if given and found.note else ""
