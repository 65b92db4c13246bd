"""/proc/stat."""

from exhume.procfs.stat import parse_cpu_times, parse_machine_times, parse_totals

STAT = (
    b"cpu  2 4 6 8\ncpu0 1 2 3 4\ncpu3 1 2 3 4\nintr 99 1 0 2\nctxt 42\nprocesses 7\nprocs_running 1\nprocs_blocked 0\n"
)


def test_cores_and_totals() -> None:
    cpus, times = parse_cpu_times(STAT)
    assert cpus.tolist() == [0, 3]
    assert times[:, :4].tolist() == [[1, 2, 3, 4], [1, 2, 3, 4]]
    assert parse_machine_times(STAT) == [2, 4, 6, 8]
    assert parse_totals(STAT) == {"intr": 99, "ctxt": 42, "processes": 7, "procs_running": 1, "procs_blocked": 0}


def test_older_kernels_with_fewer_columns() -> None:
    cpus, counts = parse_cpu_times(b"cpu  1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 6 7 8\nintr 1\n")
    assert cpus.tolist() == [0]
    assert counts[0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 0, 0]


def test_a_kernel_that_prints_no_core_of_its_own() -> None:
    cpus, counts = parse_cpu_times(b"cpu  1 2 3 4 5 6 7 8 9 10\nintr 1\n")
    assert cpus.tolist() == [0]
    assert counts[0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_a_number_at_the_very_end() -> None:
    assert parse_totals(b"cpu 1\nctxt 42") == {"ctxt": 42}
