"""How much disk the samples of a large node take, compared with perf.data of the same seconds."""

import time
from pathlib import Path

from bench.high_rate import UNBOUNDED, rate_hz
from bench.load import load
from bench.processes import start_exhume, start_perf, watch
from bench.report import Row, Section
from bench.sizes import perf_data, recorded, whole

MEGA = 1e6


def measure(work: Path, quick: bool) -> Section:
    seconds, rate = (65 if quick else 130), rate_hz()
    directory, data = work / "disk", work / "disk.perf.data"
    with load():
        time.sleep(1)
        exhume = start_exhume(directory, rate, *UNBOUNDED)
        perf = start_perf(data, rate)
        time.sleep(3)
        watch(seconds, exhume, perf)
    exhume.finish()
    perf.finish()
    ours, theirs = recorded(directory), perf_data(data)
    data.unlink()
    ratio = ours.bytes_a_sample / theirs.bytes_a_sample
    return Section(
        "Disk",
        f"""
        Both record the same {seconds} s at {rate} Hz under the same load. exhume: sealed samples with their
        stacks and symbols. perf: its data file as it is (symbols still outside). Both by the sample, since
        neither starts and ends at the same moment.
        """,
        [
            Row("bytes a sample, stacks and symbols included", ours.bytes_a_sample, "B", 10.0, 6.0),
            Row(
                "size / the same samples as perf.data",
                ratio,
                "",
                1 / 15,
                1 / 30,
                digits=4,
                note=f"1/{1 / ratio:.0f}; must 1/15, aim 1/30",
            ),
            Row("perf.data, a sample", theirs.bytes_a_sample, "B"),
            Row(
                "exhume, all tables, a sample",
                whole(directory) / ours.samples,
                "B",
                digits=2,
                note="counters, processes, interrupts, log and the rest included",
            ),
            Row("samples that exhume kept", ours.samples, "", digits=0),
            Row("samples that perf kept", theirs.samples, "", digits=0),
            Row("exhume, all tables", whole(directory) / MEGA, "MB", digits=1),
            Row("perf.data", theirs.bytes / MEGA, "MB", digits=1),
        ],
    )
