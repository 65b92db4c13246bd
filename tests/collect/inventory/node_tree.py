"""A node's root directory, made up file by file."""

from pathlib import Path

from exhume.collect.node_root import NodeRoot


class NodeTree:
    """Write files by the node's own names, and read the node through `root`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("proc", "sys", "dev", "var/log", "etc", "run"):
            (path / name).mkdir(parents=True)
        self.root = NodeRoot(path)

    def write(self, name: str, content: str | bytes) -> Path:
        target = self.path / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def link(self, name: str, target: str) -> None:
        place = self.path / name.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
