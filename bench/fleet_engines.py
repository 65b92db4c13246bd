"""DuckDB and Daft over the same lake: the largest query of the fleet report, in this process and on Ray.

    python -m bench.fleet_engines LAKE [--ray]

Run it with a Python that has Daft (with --ray also Ray) next to the program's own dependencies. Each engine runs in a
process of its own, one after the other, fastest of three, after one run that fills the page cache. Daft has no arg_max:
the greatest count of a step stands for the newest one in both.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

RUNS = 3
STEP_US = 4 * 3600 * 1_000_000
COLUMNS = ("node", "boot_id", "minute", "uptime_s", "memcgs_dying", "cost_per_zombie_us", "longest_stall_s")


def duckdb_rows(lake: str, cores: int) -> pa.Table:
    import duckdb

    source = f"read_parquet('{lake}/summaries/**/*.parquet', union_by_name = true, hive_partitioning = false)"
    query = f"""
        SELECT node, boot_id, epoch_us("minute") // {STEP_US} AS step, count(*) AS minutes,
            min("minute") AS first, max("minute") AS last, min(uptime_s) AS uptime_low, max(uptime_s) AS uptime_high,
            max(memcgs_dying) AS dying, sum(cost_per_zombie_us) AS cost_sum, max(longest_stall_s) AS stall
        FROM {source} GROUP BY ALL
    """
    with duckdb.connect(config={"threads": cores}) as connection:
        return connection.sql(query).to_arrow_table()


def daft_rows(lake: str, _: int) -> pa.Table:
    import daft
    from daft import col

    step = (col("minute").cast(daft.DataType.int64()) // STEP_US).alias("step")
    rows = daft.read_parquet(f"{lake}/summaries/**/*.parquet").select(*COLUMNS)
    grouped = rows.groupby("node", "boot_id", step).agg(
        col("minute").count().alias("minutes"),
        col("minute").min().alias("first"),
        col("minute").max().alias("last"),
        col("uptime_s").min().alias("uptime_low"),
        col("uptime_s").max().alias("uptime_high"),
        col("memcgs_dying").max().alias("dying"),
        col("cost_per_zombie_us").sum().alias("cost_sum"),
        col("longest_stall_s").max().alias("stall"),
    )
    return grouped.to_arrow()


def daft_on_ray(lake: str, cores: int) -> pa.Table:
    import daft
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=cores, logging_level="ERROR", log_to_driver=False)
        daft.set_runner_ray()
    return daft_rows(lake, cores)


ENGINES: dict[str, Callable[[str, int], pa.Table]] = {"duckdb": duckdb_rows, "daft": daft_rows, "daft-ray": daft_on_ray}


def measure(engine: str, lake: str, cores: int) -> None:
    """Print how long the query took, in this process, and the size and sums of its answer."""
    took: list[float] = []
    for _ in range(RUNS + 1):
        began = time.monotonic()
        answer = ENGINES[engine](lake, cores)
        took.append(time.monotonic() - began)
    sums = [pc.sum(answer[name]).as_py() for name in ("minutes", "dying")]
    print(json.dumps({"seconds": min(took[1:]), "answer": [len(answer), *sums]}))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet_engines")
    parser.add_argument("lake", type=Path)
    parser.add_argument("--ray", action="store_true", help="Daft on Ray too, with one and two workers")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    if options.engine:
        measure(options.engine, str(options.lake), options.cores)
        return 0
    answers = []
    for engine, cores in (("duckdb", 2), ("daft", 2), *((("daft-ray", 1), ("daft-ray", 2)) if options.ray else ())):
        command = [sys.executable, "-m", "bench.fleet_engines", str(options.lake), "--engine", engine]
        process = subprocess.Popen([*command, "--cores", str(cores)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            return 2
        found = json.loads(output.splitlines()[-1])
        answers.append(found["answer"])
        cpu = (used.ru_utime + used.ru_stime) / (RUNS + 1)
        # What Ray's workers take is not this process's.
        own = "" if engine == "daft-ray" else f"  {cpu:6.2f} s of CPU  {used.ru_maxrss / 1e6:5.2f} GB"
        print(f"{engine:9} {cores} cores  {found['seconds']:6.2f} s{own}", flush=True)
    same = all(answer == answers[0] for answer in answers)
    print("equal answers" if same else f"the answers differ: {answers}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
