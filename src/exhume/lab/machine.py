"""The facts of a machine that measured figures depend on; nothing that names the machine."""

import importlib.metadata
import os
import platform
from pathlib import Path


def machine_facts() -> dict[str, str]:
    """What to tell beside figures that were measured here."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("exhume", "pyarrow", "numpy"))
    return {
        "CPU": f"{cpu}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{int(memory.split()[1]) / (1 << 20):.0f} GiB",
        "kernel": f"Linux {platform.release().split('-')[0]}, {platform.machine()}",
        "Python": f"{platform.python_version()}; {packages}",
    }
