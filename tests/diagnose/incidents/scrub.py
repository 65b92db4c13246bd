"""Takes out of recorded rows what belongs to the machine they come from: names, command lines, paths, log texts.

What the lab made keeps its name (it is random), and so do threads of the kernel and the tools of every system.
Everything else gets a number in the order in which it is met, so that what was the same stays the same.
"""

import re
from collections.abc import Collection
from typing import Any

Rows = list[dict[str, Any]]

KERNEL_THREAD = re.compile(
    r"(kworker|ksoftirqd|kswapd|kcompactd|khugepaged|migration|rcu|jbd2|kthreadd|swapper|oom_reaper|watchdog|irq|ksmd"
    r"|cpuhp|kdevtmpfs|kauditd|khungtaskd|writeback|loop|kblockd|scsi_eh|netns|xfs|ext4|nfsd)\b.*"
)
TOOLS = {"sh", "true", "sleep", "ip", "mount", "umount", "exhume", "python", "python3", "dd", "iptables", "nft", "sync"}
# Names of the story that the lab tells.
STORY = {"kubelet", "ecs-agent", "amazon/amazon-ecs-agent:latest", "busybox"}
# Random names, chosen by the container engine.
CONTAINER_ID = re.compile(r"[0-9a-f]{12,64}")
# Beginnings of cgroup paths that say nothing about a machine.
PLAIN_CGROUPS = re.compile(r"/?(|init\.scope|system\.slice|user\.slice|kubepods|docker)/?")
ADDRESSES = re.compile(r"\b(?:0x)?[0-9a-f]{12,16}\b|\b\d+\.\d+\.\d+\.\d+\b|(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
SYSTEM_PATHS = re.compile(r"/(?:[\w.@+-]+/)+[\w.@+-]+")


class Scrubber:
    """Remembers which name got which number."""

    def __init__(self, names: Collection[str], cgroups: Collection[str]) -> None:
        self._names = set(names)
        self._own = {part for path in cgroups for part in path.rpartition("/")[2:] if part}
        self._comms: dict[str, str] = {}
        self._commands: dict[str, str] = {}
        self._paths: dict[str, str] = {}

    def comm(self, name: str | None) -> str | None:
        if name is None or self._keeps(name):
            return name
        return self._comms.setdefault(name, f"service-{len(self._comms) + 1}")

    def command(self, line: str | None, comm: str | None) -> str | None:
        """The name of the program, and a number for the rest of its words."""
        if not line:
            return line
        number = self._commands.setdefault(line, str(len(self._commands) + 1))
        return f"{self.comm(comm) or 'program'} --job {number}"

    def cgroup(self, path: str | None) -> str | None:
        if path is None or PLAIN_CGROUPS.fullmatch(path) or any(name in path for name in self._own):
            return path
        number = len(self._paths) + 1
        # What is no unit has no owner, and must not get one.
        unit = ".service" in path
        return self._paths.setdefault(path, f"/system.slice/service-{number}.service" if unit else f"/group-{number}")

    def text(self, words: str) -> str:
        """A line of the log: addresses, paths and names of programs are replaced, the message stays."""
        words = ADDRESSES.sub("…", words)
        if not any(name in words for name in self._own):
            words = SYSTEM_PATHS.sub("/…", words)
        for name, reported in self._comms.items():
            words = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", reported, words)
        return words

    def rows(self, table: str, rows: Rows) -> Rows:
        """The rows of a table, scrubbed in place. Processes and samples have to come before events."""
        for row in rows:
            if table == "processes":
                row["cmdline"] = self.command(row["cmdline"], row["comm"])
            for column in ("cgroup", "cpuset", "path", "parent"):
                if column in row:
                    row[column] = self.cgroup(row[column])
            if table in ("events", "losses"):
                row["text"] = self.text(row["text"])
            if "comm" in row:
                row["comm"] = self.comm(row["comm"])
            for column in ("container", "pod", "container_name", "pod_name", "image"):
                if row.get(column):
                    row[column] = self.comm(row[column])
        return rows

    def _keeps(self, name: str) -> bool:
        # The kernel keeps fifteen characters of a name, and programs may add to theirs.
        own = any(name.startswith(each[:12]) for each in self._names)
        plain = name in TOOLS or name in STORY or CONTAINER_ID.fullmatch(name) is not None
        return own or plain or KERNEL_THREAD.fullmatch(name) is not None
