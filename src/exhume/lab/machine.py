"""What measured figures depend on: the facts of a machine (nothing that names it), and what else it is busy with."""

import importlib.metadata
import os
import platform
import time
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


def others_busy(seconds: float = 3.0) -> float:
    """The share of the machine that is busy while nothing is measured."""
    before = _cpu_times()
    time.sleep(seconds)
    spent = [after - start for after, start in zip(_cpu_times(), before, strict=True)]
    idle = spent[3] + spent[4]
    return 1 - idle / max(1, sum(spent))


def _cpu_times() -> list[int]:
    # Guest time is part of user time already.
    return [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
