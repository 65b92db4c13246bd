"""Whole nodes for scenes: a busy healthy one, to hold a cause against."""

from tests.diagnose.scenes import Scene

COMPUTING = ["app:main", "app:compute"]
READING = ["libc:read", "entry_SYSCALL_64_after_hwframe", "do_syscall_64", "ksys_read", "vfs_read", "filemap_read"]


def healthy(cores: int = 4, seconds: int = 40, busy_from: int = 0) -> Scene:
    """All cores compute, read a little, and leave little idle: each has two programs, and waits are the same on all."""
    scene = Scene(cores=cores, seconds=seconds)
    for cpu in range(cores):
        scene.core(cpu, busy_from, seconds, user=850, system=100, wait_ns=400_000_000)
        scene.stack(cpu, busy_from, seconds, 0.6, "worker", 1000 + cpu, COMPUTING)
        scene.stack(cpu, busy_from, seconds, 0.25, "helper", 2000 + cpu, COMPUTING)
        scene.stack(cpu, busy_from, seconds, 0.1, "worker", 1000 + cpu, READING)
    return scene
