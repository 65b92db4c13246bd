"""What recording costs at the ordinary rate, beside perf record and mpstat in the same minute."""

import time
from pathlib import Path

from bench.load import FORKS_PER_SECOND, load
from bench.processes import start_exhume, start_mpstat, start_perf, watch
from bench.report import Row, Section
from bench.sizes import perf_data, recorded

RATE_HZ = 97
# Starting up (imports, symbol tables) is paid once in weeks; it is told apart from the running cost.
WARM_UP_S = 8


def measure(work: Path, quick: bool) -> Section:
    seconds = 25 if quick else 60
    directory, data = work / "cost", work / "cost.perf.data"
    with load():
        time.sleep(1)
        exhume, perf, mpstat = (
            start_exhume(directory, RATE_HZ),
            start_perf(data, RATE_HZ),
            start_mpstat(work / "mpstat.log"),
        )
        time.sleep(WARM_UP_S)
        ours, perfs, mpstats = watch(seconds, exhume, perf, mpstat)
        whole = {process.name: process.finish() for process in (exhume, perf, mpstat)}
    sealed, theirs = recorded(directory), perf_data(data)
    return Section(
        "Recording at 97 Hz",
        f"""
        `exhume record --rate {RATE_HZ}`, `perf record -F {RATE_HZ} -g -a` and `mpstat -P ALL 1` run
        together for {seconds} s while every core compresses and {FORKS_PER_SECOND} processes a second come
        and go. CPU is the kernel's own count of each process, its threads and its children, in those
        seconds; start and end are told apart.
        """,
        [
            Row("CPU of exhume record / CPU of perf record, 97 Hz", ours / perfs, "", 1.0, 0.4),
            Row("CPU of exhume record", 100 * ours / seconds, "% of one core"),
            Row("CPU of perf record", 100 * perfs / seconds, "% of one core"),
            Row("CPU of mpstat", 100 * mpstats / seconds, "% of one core", note="counters only: no stacks, no log"),
            Row("whole life, start and end included: exhume record", whole["exhume record"], "s of CPU"),
            Row("whole life, start and end included: perf record", whole["perf record"], "s of CPU"),
            Row("samples that exhume kept", sealed.samples, "", digits=0),
            Row("samples that perf kept", theirs.samples, "", digits=0),
            Row(
                "bytes a sample at this low rate, exhume",
                sealed.bytes_a_sample,
                "B",
                digits=1,
                note="every minute tells its stacks and symbols again, for few samples; the bound is for a large node",
            ),
            Row("bytes a sample, perf.data", theirs.bytes_a_sample, "B", digits=1),
        ],
    )
