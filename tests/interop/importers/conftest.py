"""Recordings by the real perf, and what perf script says of them."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.parts import need

# A parent that renames itself and forks children that run programs, with stacks in the kernel, in Python and in libc.
LOAD = """
import os, subprocess, sys, time
open("/proc/self/comm", "w").write("two words 7")
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    subprocess.run(["ls", "-R", "/usr/share/doc"], stdout=subprocess.DEVNULL)
    sum(i * i for i in range(100_000))
    os.listdir("/proc")
"""
_HEAD = re.compile(r"(.*?)\s+(-?\d+)/(-?\d+)\s+\[(\d+)\]\s+(\d+)\.(\d{9}):\s+(\S+?):(?: +(.*)|\s*)$")
_FRAME = re.compile(r"\s+([0-9a-f]+) (.*?)(?:\+0x([0-9a-f]+))? \((.*)\)$")


@dataclass(frozen=True)
class Expected:
    """A sample as perf script prints it; frames are address, symbol, offset in it and file, the leaf first."""

    time: int
    cpu: int
    pid: int
    tid: int
    comm: str
    event: str
    frames: list[tuple[int, str, int, str]]


class Perf:
    """The perf program with a cache of build ids of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cache = directory / "buildid"
        self._base = [need("perf"), "--buildid-dir", str(self.cache)]

    def record(self, name: str, *flags: str, seconds: float = 1.5) -> Path:
        """A recording of the load; the same file for all tests that give it the same name."""
        path = self.directory / name
        if path.exists():
            return path
        load = [sys.executable, "-c", LOAD, str(seconds)]
        if "-" in flags:
            with path.open("wb") as output:
                subprocess.run([*self._base, "record", "-q", "-o", *flags, *load], stdout=output, check=True)
        else:
            subprocess.run([*self._base, "record", "-q", "-o", str(path), *flags, *load], check=True)
        return path

    def script(self, path: Path, *flags: str) -> str:
        command = [*self._base, "script", "-i", str(path), *flags]
        return subprocess.run(command, capture_output=True, check=True).stdout.decode("utf-8", "replace")

    def expected(self, path: Path, event: str = "") -> list[Expected]:
        fields = "comm,pid,tid,cpu,time,event,ip,sym,symoff,dso"
        found: list[Expected] = []
        lines = self.script(path, "--ns", "--no-inline", "-F", fields).split("\n")
        for line in filter(str.strip, lines):
            match = None if line.startswith("\t") else _HEAD.match(line)
            if match is not None:
                time = int(match[5]) * 10**9 + int(match[6])
                numbers = (int(match[4]), int(match[2]), int(match[3]))
                found.append(Expected(time, *numbers, match[1].strip(), match[7], []))
            # Without a callchain the frame stands in the same line.
            text = line if match is None else f" {match[8] or ''}"
            if frame := _FRAME.match(text):
                found[-1].frames.append((int(frame[1], 16), frame[2], int(frame[3] or "0", 16), frame[4]))
        return [each for each in found if each.event.startswith(event)]


@pytest.fixture(scope="module")
def perf(tmp_path_factory: pytest.TempPathFactory) -> Perf:
    return Perf(tmp_path_factory.mktemp("perf"))
