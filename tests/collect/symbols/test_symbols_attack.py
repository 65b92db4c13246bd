"""A user who starts processes of crafted programs as fast as the machine can, against a recorder of the whole node."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests import crafted_elf
from tests.collect.symbols.symbol_programs import Compile

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.root]

NOBODY = 65534
# Those that take little room on disk.
KINDS = ("endless_symtab", "endless_sections", "endless_strings")
PROGRAMS = 2_000
PROCESSES = 20_000
# They are spread over less than a minute, and may take longer where others have the cores.
PACE_S, LONGEST_S = 50, 120
MEMORY_BUDGET_KB = 150_000
CPU_BUDGET = 0.08

# Computes for about a millisecond in code of its own. It has no C library to start, so that two cores run thousands
# of it in a few seconds.
SPIN = """
__attribute__((noinline)) static long turn(long x) { for (int i = 0; i < 1000; i++) x = x * 31 + i; return x; }
void _start(void) {
    volatile long x = 1;
    for (int i = 0; i < 300; i++) x = turn(x);
#if defined(__x86_64__)
    __asm__ volatile("syscall" : : "a"(231L), "D"(0L) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long number __asm__("x8") = 94, status __asm__("x0") = 0;
    __asm__ volatile("svc 0" : : "r"(number), "r"(status));
#endif
    __builtin_unreachable();
}
"""

LAUNCHER = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/wait.h>
int main(int argc, char **argv) {
    int programs = atoi(argv[2]), most = atoi(argv[3]), started = 0, running = 0;
    int pace = atoi(argv[4]), limit = atoi(argv[5]);
    struct timespec began, now;
    char path[4096];
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (; started < most; started++) {
        do {
            clock_gettime(CLOCK_MONOTONIC, &now);
            double past = now.tv_sec - began.tv_sec + (now.tv_nsec - began.tv_nsec) / 1e9;
            if (past > limit) most = started;
            if (past * most >= (double)started * pace) break;
            usleep(1000);
        } while (1);
        snprintf(path, sizeof path, "%s/crafted%d", argv[1], started % programs);
        if (fork() == 0) { execl(path, path, (char *)0); _exit(127); }
        if (++running > 8) { wait(0); running--; }
    }
    while (wait(0) > 0);
    printf("%d\\n", started);
    return 0;
}
"""


@pytest.mark.long
@pytest.mark.needs("gcc")
def test_a_storm_of_crafted_programs_costs_no_tick_and_names_who_makes_it(compile_c: Compile, tmp_path: Path) -> None:
    program = compile_c(SPIN, "-s", "-static", "-nostdlib")
    launch = compile_c(LAUNCHER, name="launcher")
    programs = tmp_path / "programs"
    programs.mkdir(mode=0o755)
    for each in (tmp_path, *tmp_path.parents[:2]):
        each.chmod(0o755)
    for number in range(PROGRAMS):
        kind = KINDS[number % len(KINDS)]
        crafted_elf.write(kind, program, programs / f"crafted{number}").chmod(0o755)
    recording = tmp_path / "recording"
    command = [sys.executable, "-m", "exhume.cli.main", "record", "--dir", recording]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recorder:
        try:
            time.sleep(5)
            launcher = subprocess.run(
                [launch, programs, str(PROGRAMS), str(PROCESSES), str(PACE_S), str(LONGEST_S)],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                cwd="/",
                capture_output=True,
                text=True,
                check=True,
                timeout=LONGEST_S + 60,
            )
            began = time.monotonic()
            recorder.terminate()
            recorder.wait(60)
            ended_in = time.monotonic() - began
        finally:
            if recorder.poll() is None:
                os.kill(recorder.pid, signal.SIGKILL)
    started = int(launcher.stdout)
    rows = {
        table: [row for path in recording.glob(f"2*/{table}.parquet") for row in pq.read_table(path).to_pylist()]
        for table in ("self", "losses")
    }
    longest = max(row["span_ms"] for row in rows["self"])
    settled = sorted(rows["self"], key=lambda row: row["time"])[5:]
    share = sum(row["user_us"] + row["system_us"] for row in settled) / sum(row["span_ms"] for row in settled) / 1000
    memory = max(row["rss_kb"] for row in rows["self"])
    named = [row for row in rows["losses"] if row["kind"].startswith("symbols-") and f"uid {NOBODY}" in row["text"]]
    print(f"{started} processes of {PROGRAMS} programs; longest tick {longest} ms, {share:.1%} of a core, {memory} KiB")
    assert started == PROCESSES
    assert ended_in < 5
    assert longest < 3000, "no tick is late by more than two seconds"
    assert memory < MEMORY_BUDGET_KB
    assert share < CPU_BUDGET
    assert named and max(row["count"] for row in named) > 1
