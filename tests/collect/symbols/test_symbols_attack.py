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
SECONDS = 60
MEMORY_BUDGET_KB = 150_000
CPU_BUDGET = 0.08

# Spins for a few samples' worth of time in code of its own.
SPIN = """
#include <time.h>
__attribute__((noinline)) long turn(long x) { for (int i = 0; i < 1000; i++) x = x * 31 + i; return x; }
int main(void) {
    struct timespec t; long x = 1; clock_t end = clock() + CLOCKS_PER_SEC / 500;
    while (clock() < end) x = turn(x);
    return (int)(x & 1);
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
    time_t end = time(0) + atoi(argv[4]);
    char path[4096];
    for (; started < most && time(0) < end; started++) {
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
    program = compile_c(SPIN, "-s")
    launch = compile_c(LAUNCHER, name="launcher")
    programs = tmp_path / "programs"
    programs.mkdir(mode=0o755)
    for each in (tmp_path, *tmp_path.parents[:2]):
        each.chmod(0o755)
    for number in range(PROGRAMS):
        kind = KINDS[number % len(KINDS)]
        crafted_elf.write(kind, program, programs / f"crafted{number}").chmod(0o755)
    recording = tmp_path / "recording"
    command = [sys.executable, "-m", "exhume.cli.main", "record", "--dir", recording, "--for", f"{SECONDS + 10}s"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recorder:
        try:
            time.sleep(5)
            launcher = subprocess.run(
                [launch, programs, str(PROGRAMS), str(PROCESSES), str(SECONDS)],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                cwd="/",
                capture_output=True,
                text=True,
                check=True,
                timeout=SECONDS + 60,
            )
            recorder.wait(60)
        finally:
            if recorder.poll() is None:
                os.kill(recorder.pid, signal.SIGKILL)
    started = int(launcher.stdout)
    rows = {
        table: [row for path in recording.glob(f"2*/{table}.parquet") for row in pq.read_table(path).to_pylist()]
        for table in ("self", "losses")
    }
    longest = max(row["span_ms"] for row in rows["self"])
    settled = rows["self"][15:]
    share = sum(row["user_us"] + row["system_us"] for row in settled) / sum(row["span_ms"] for row in settled) / 1000
    memory = max(row["rss_kb"] for row in rows["self"])
    named = [row for row in rows["losses"] if row["kind"].startswith("symbols-") and f"uid {NOBODY}" in row["text"]]
    print(f"{started} processes of {PROGRAMS} programs; longest tick {longest} ms, {share:.1%} of a core, {memory} KiB")
    assert started > 1000
    assert longest < 3000, "no tick is late by more than two seconds"
    assert memory < MEMORY_BUDGET_KB
    assert share < 2 * CPU_BUDGET, "the rate is lowered over half a minute"
    assert named and max(row["count"] for row in named) > 1
