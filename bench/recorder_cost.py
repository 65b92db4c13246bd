"""What recording costs at the default rate, compared with perf record and mpstat in the same minute."""

import time
from pathlib import Path

from bench.load import FORKS_PER_SECOND, load
from bench.processes import start_exhume, start_mpstat, start_perf, watch
from bench.report import Row, Section
from bench.sizes import perf_data, recorded

RATE_HZ = 97
MINUTE_S = 60
# The running cost alone is watched after this long, when imports and symbol tables are paid for.
WARM_UP_S = 8


def measure(work: Path, quick: bool) -> Section:
    seconds = MINUTE_S // 2 if quick else MINUTE_S
    directory, data = work / "cost", work / "cost.perf.data"
    with load():
        time.sleep(1)
        exhume, perf = start_exhume(directory, RATE_HZ), start_perf(data, RATE_HZ)
        mpstat = start_mpstat(work / "mpstat.log")
        time.sleep(WARM_UP_S)
        running = watch(seconds - WARM_UP_S, exhume, perf, mpstat)
    # All end without the load: perf, with everything still to read, would take minutes under it.
    ours, perfs, mpstats = (process.finish() for process in (exhume, perf, mpstat))
    sealed, theirs = recorded(directory), perf_data(data)
    return Section(
        "Recording at 97 Hz",
        f"""
        `exhume record --rate {RATE_HZ}`, `perf record -F {RATE_HZ} -g -a` and `mpstat -P ALL 1` run together for
        {seconds} s while every core compresses and {FORKS_PER_SECOND} processes a second come and go. CPU is the
        kernel's own count of each process, its threads and its children, from start to exit: perf only copies while it
        runs and reads everything again at its end, so its cost goes with the number of processes; exhume pays for
        imports and symbol tables at its start, once in weeks, and has nothing left to do at its end. With fewer
        processes perf's cost falls faster than exhume's and the ratio rises: below some 500 a second exhume costs more.
        """,
        [
            Row("CPU of exhume record / CPU of perf record, 97 Hz", ours / perfs, "", 1.0, 0.4),
            Row("exhume record, start and end included", ours, "s of CPU"),
            Row("perf record, start and end included", perfs, "s of CPU"),
            Row("mpstat, start and end included", mpstats, "s of CPU", note="counters only: no stacks, no log"),
            *(
                Row(f"{name} while it runs, start and end left out", 100 * cpu / (seconds - WARM_UP_S), "% of one core")
                for name, cpu in zip(("exhume record", "perf record", "mpstat"), running, strict=True)
            ),
            Row("samples that exhume kept", sealed.samples, "", digits=0),
            Row("samples that perf kept", theirs.samples, "", digits=0),
            Row(
                "bytes a sample at this low rate, exhume",
                sealed.bytes_a_sample,
                "B",
                digits=1,
                note="every minute stores its stacks and symbols again, for few samples; the bound is for a large node",
            ),
            Row("bytes a sample, perf.data", theirs.bytes_a_sample, "B", digits=1),
        ],
    )
