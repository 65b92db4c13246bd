"""A node made of files, for the parts that read /proc and write to cgroups."""

from pathlib import Path

from exhume.procfs.host import Host


def node(tmp_path: Path, **files: str) -> Host:
    """Whatever is below `tmp_path` is below a mount of cgroups."""
    proc = tmp_path / "proc"
    mounts = f"1 0 0:30 / {tmp_path} rw - cgroup2 cgroup2 rw\n"
    for name, content in {"sys/kernel/random/boot_id": "aaaa-bbbb\n", "self/mountinfo": mounts, **files}.items():
        path = proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return Host(proc=proc)


def cgroup(directory: Path, **files: str) -> Path:
    """A cgroup with these files of the memory controller."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / f"memory.{name.replace('__', '.')}").write_text(content)
    return directory
