"""Busy healthy nodes at random: programs come, go, compute, read, serve and fork. Nothing is found above info."""

import random
from pathlib import Path

import pytest
from tests.diagnose.judged import judged_recording
from tests.diagnose.scenes import Scene

CALL = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64"]
KERNEL = {
    "read": [*CALL, "ksys_read", "vfs_read", "ext4_file_read_iter", "filemap_read", "copy_page_to_iter"],
    "write": [*CALL, "ksys_write", "vfs_write", "ext4_file_write_iter", "generic_perform_write"],
    "send": [*CALL, "__sys_sendto", "sock_sendmsg", "tcp_sendmsg", "tcp_sendmsg_locked", "tcp_write_xmit"],
    "receive": [*CALL, "__sys_recvfrom", "sock_recvmsg", "tcp_recvmsg", "tcp_recvmsg_locked"],
    "fault": ["asm_exc_page_fault", "exc_page_fault", "handle_mm_fault", "do_anonymous_page", "clear_page_erms"],
    "wait": [*CALL, "do_futex", "futex_wait", "futex_wait_queue", "schedule"],
    "fork": [*CALL, "kernel_clone", "copy_process", "dup_mm", "copy_page_range"],
    "open": [*CALL, "do_sys_openat2", "path_openat", "link_path_walk", "walk_component", "__d_lookup_rcu"],
    "lock": [*CALL, "do_futex", "futex_wake", "_raw_spin_lock", "native_queued_spin_lock_slowpath"],
}


class HealthyNode:
    """Each program goes where there is room, as the scheduler has it; where there is none it takes what is left."""

    def __init__(self, seed: int, cores: int, seconds: int = 30) -> None:
        self.dice = random.Random(seed)
        self.scene = Scene(cores=cores, seconds=seconds)
        self.used = [[0.0] * seconds for _ in range(cores)]
        for pid in range(1000, 1000 + self.dice.randint(cores, 3 * cores)):
            self._program(pid)
        for second in range(seconds):
            self.scene.node(second, second + 1, forks=self.dice.randrange(300), pgfault=self.dice.randrange(40_000))
            for cpu in range(cores):
                waited = round(self.dice.uniform(0, 0.6) * self.used[cpu][second] * 1e9)
                self.scene.core(cpu, second, second + 1, wait_ns=waited)

    def _program(self, pid: int) -> None:
        dice, seconds = self.dice, self.scene.seconds
        since = dice.choice((0, 0, dice.randrange(seconds - 8)))
        until = dice.choice((seconds, seconds, min(seconds, since + dice.randint(4, 20))))
        part, in_kernel = dice.uniform(0.05, 1.0), dice.choice((0.02, 0.1, 0.3))
        paths = [KERNEL[name] for name in dice.sample(sorted(KERNEL), 3)]
        for second in range(since, until):
            cpu = min(range(self.scene.cores), key=lambda core: self.used[core][second])
            got = min(part * dice.uniform(0.7, 1.2), 1 - self.used[cpu][second])
            self.used[cpu][second] += got
            self._spend(cpu, second, "user", got * (1 - in_kernel), pid, ["app:main", "app:work"])
            for path in paths:
                self._spend(cpu, second, "system", got * in_kernel / 3, pid, path)

    def _spend(self, cpu: int, second: int, state: str, share: float, pid: int, path: list[str]) -> None:  # noqa: PLR0917
        self.scene.stack(cpu, second, second + 1, share, f"program{pid % 7}", pid, path)
        states = self.scene.states(cpu, second)
        self.scene.core(cpu, second, second + 1, **{state: states.get(state, 0) + int(share * 1000)})


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_found_above_info(tmp_path: Path, seed: int) -> None:
    node = HealthyNode(seed, cores=(2, 2, 4, 8, 16)[seed % 5])
    found = judged_recording(node.scene.write(tmp_path), node.scene.window)
    assert [each.summary for each in found.findings if each.severity != "info"] == []
    assert found.verdict == "healthy"
