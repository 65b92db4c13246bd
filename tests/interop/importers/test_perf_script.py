"""The text of perf script: every shape that it has, and the same samples as perf.data has."""

import gzip
import re
import subprocess

import pyarrow as pa
import pytest
from tests.interop.importers.made_up import STACK, START, imported, put, script

from exhume.interop.importers import importer, perf_script
from exhume.interop.importers.files import InputFile
from exhume.interop.importers.form import FileSummary, ReadOptions
from exhume.interop.importers.perf_script import ScriptReader, first_boot_time, looks_like_script
from exhume.interop.importers.spool import Intake
from exhume.model.clock import NANOS, Window


class Samples:
    """Keeps samples as they were handed over."""

    def __init__(self):
        self.rows = []

    def add_samples(self, batch, book, comms):
        for at in range(len(batch)):
            frames = [(frame.kind, frame.module, frame.name) for frame in reversed(book.stacks[batch.stack[at]])]
            numbers = [int(getattr(batch, name)[at]) for name in ("time", "cpu", "pid", "tid", "weight_us")]
            self.rows.append((*numbers, comms[batch.comm[at]], frames))

    def finish(self, book, comms):
        pass


def parsed(tmp_path, text, **options):
    spool = Samples()
    intake = Intake(spool, FileSummary("x"))
    with put(tmp_path, "script", text).open("rb") as file:
        ScriptReader(intake, ReadOptions(**{"offset": 0, **options})).read(file)
    return spool.rows, intake


FRAMES = [
    ("kernel", "[kernel]", "__kmalloc"),
    ("kernel", "[ext4]", "ext4_dir_open"),
    ("user", "/usr/lib/libc.so.6", "_IO_file_xsputn"),
    ("user", "/usr/bin/tool", "tool+0x146f7c"),
]
HEADS = {
    # What -F left out, names with blanks and digits, threads without a number.
    "usual": ("tool   77 [003]  12.345678:    2012072 cpu-clock:ppp: ", (12_345_678_000, 3, 77, 77, 2012, "tool")),
    "nanoseconds": ("tool   77/78 [003]  12.345678901: 1000 cycles: ", (12_345_678_901, 3, 77, 78, None, "tool")),
    "padded": ("            tool   77 [003]  12.345678: 1000 cpu-clock: ", (12_345_678_000, 3, 77, 77, 1, "tool")),
    "blanks and digits": (
        "my prog 12 9   77/78    [003]  12.345678: 1000 cpu-clock: ",
        (12_345_678_000, 3, 77, 78, 1, "my prog 12 9"),
    ),
    "digits only": ("12 34   77 [003]  12.345678: 1000 cpu-clock: ", (12_345_678_000, 3, 77, 77, 1, "12 34")),
    "colon": ("tmux: server   77 [003]  12.345678: 1000 cpu-clock: ", (12_345_678_000, 3, 77, 77, 1, "tmux: server")),
    "exited": (":-1   -1/-1    [003]  12.345678: 1000 cpu-clock: ", (12_345_678_000, 3, -1, -1, 1, ":-1")),
    "brackets": ("k[0] x   77 [003]  12.345678: 1000 cpu-clock: ", (12_345_678_000, 3, 77, 77, 1, "k[0] x")),
    "no core": ("tool   77/78   12.345678: 1000 cpu-clock: ", (12_345_678_000, 0, 77, 78, 1, "tool")),
    "no event": ("tool   77 [003]  12.345678: ", (12_345_678_000, 3, 77, 77, None, "tool")),
    "no comm": ("   77/78 [003]  12.345678: 1000 cpu-clock: ", (12_345_678_000, 3, 77, 78, 1, "")),
    "misc": ("tool   77 [003] K   12.345678: 1000 cpu-clock: ", (12_345_678_000, 3, 77, 77, 1, "tool")),
    "day": ("tool   77 [003] 2026-03-01 03:00:00.500000: 1000 cpu-clock: ", (START + NANOS // 2, 3, 77, 77, 1, "tool")),
}


@pytest.mark.parametrize("name", HEADS)
def test_fields_of_the_first_line(tmp_path, name):
    head, (time, cpu, pid, tid, weight, comm) = HEADS[name]
    rows, intake = parsed(tmp_path, f"{head}\n{STACK}\n")
    assert not list(intake.left_out)
    assert len(rows) == 1
    assert rows[0][:4] == (time, cpu, pid, tid)
    assert weight is None or rows[0][4] == weight
    assert rows[0][5:] == (comm, FRAMES)


def test_frames_in_every_shape(tmp_path):
    text = (
        "tool 77/77 [000] 1.000000: 1000 cpu-clock: \n"
        "\tffffffff81633bb1 [unknown] ([kernel.kallsyms])\n"
        "  [kernel.kallsyms][ffffffff81633bb1]\n"
        "\tffffffffc0001000 nf_hook+0x1 (/lib/modules/6.1/kernel/net/nf_tables.ko.xz)\n"
        "\t          2bb344 inner (inlined)\n"
        "  gcmodule.c:107\n"
        "\t          2bb344 operator()(int) const+0x294 (/usr/lib/lib (1).so)\n"
        "  file.cc:12 (discriminator 3)\n"
        "\t               1 [unknown] ([unknown])\n"
        "\t    7fff12340000 [unknown] (//anon)\n"
        "\t            4010 malloc@plt+0x0 (/usr/bin/tool)\n\n"
    )
    rows, _ = parsed(tmp_path, text)
    assert rows[0][6] == [
        ("kernel", "[kernel]", "0xffffffff81633bb1"),
        ("kernel", "[nf_tables]", "nf_hook"),
        ("user", "[unknown]", "inner"),
        ("user", "/usr/lib/lib (1).so", "operator()(int) const"),
        ("user", "[unknown]", "[unknown]"),
        ("user", "//anon", "anon+0x7fff12340000"),
        ("user", "/usr/bin/tool", "malloc@plt"),
    ]


def test_without_addresses_files_or_stacks(tmp_path):
    rows, _ = parsed(tmp_path, "a 1/1 [000] 1.000000: 1 cpu-clock: \n\tmain+0x2\n\t_start\n\n")
    assert [frame[2] for frame in rows[0][6]] == ["main", "_start"]
    # One line for each sample, as -G prints it.
    lines = "".join(f"      a 1/1 [000] 1.00000{i}: 1000 cpu-clock:  7f70fe76c584 work (/bin/a)\n" for i in range(3))
    rows, intake = parsed(tmp_path, lines)
    assert [(row[0], row[6][0][2]) for row in rows] == [(10**9 + i * 1000, "work") for i in range(3)]
    assert not list(intake.left_out)


def test_idle_cores_are_counted_and_not_stored(tmp_path):
    idle = "swapper 0/0 [000] {}: 100000000 cpu-clock: \n\tffffffff81000001 default_idle+0x5 ([kernel.kallsyms])\n\n"
    text = "".join(idle.format(f"{1000 + i / 10:.6f}") for i in range(10)) + script(range(1, 2), cores=1)
    _, recording = imported(tmp_path, put(tmp_path, "s", text))
    assert recording.read("samples").num_rows == 10
    counted = recording.read("sampling").to_pylist()
    assert [(row["busy"], row["idle"]) for row in counted] == [(0, 10), (10, 0)]
    cpu = recording.read("cpu").to_pylist()
    assert [row["idle"] for row in cpu] == [1000, 0]
    assert [row["system"] for row in cpu] == [0, 1000]


def test_events_are_kept_apart(tmp_path):
    other = script(range(1)).replace("cpu-clock", "cache-misses")
    path = put(tmp_path, "s", other + script(range(2)))
    result, recording = imported(tmp_path, path)
    assert result.files[0].others == {"cache-misses": 20}
    assert recording.read("samples").num_rows == 40
    result, recording = imported(tmp_path, path, directory="other", read=ReadOptions(event="cache-misses"))
    assert recording.read("samples").num_rows == 20


def test_header_says_where_it_comes_from(tmp_path):
    head = (
        "# ========\n# hostname : node-7\n# os release : 5.4.0\n# arch : aarch64\n# nrcpus avail : 96\n"
        "# event : name = cycles, , id = { 1 }, { sample_period, sample_freq } = 97, disabled = 1, freq = 1, x = 1\n"
        "# ========\n#\n"
    )
    text = head + script(range(1)).replace("cpu-clock", "cycles")
    _, recording = imported(tmp_path, put(tmp_path, "s", text))
    facts = recording.facts
    assert (facts.node, facts.kernel, facts.arch, facts.cores) == ("node-7", "5.4.0", "aarch64", 96)
    assert facts.rate_hz == 97
    assert set(recording.read("samples").column("weight_us").to_pylist()) == {round(1e6 / 97)}


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_compressed(tmp_path, packing):
    text = script(range(3)).encode()
    packed = gzip.compress(text) if packing == "gzip" else pa.compress(text, "zstd", asbytes=True)
    _, plain = imported(tmp_path, put(tmp_path, "a", text), directory="plain")
    _, other = imported(tmp_path, put(tmp_path, "b", packed), directory="packed")
    assert plain.read("samples").equals(other.read("samples"))


def test_foreign_lines_are_named_and_the_rest_kept(tmp_path):
    text = script(range(1)) + "what is this?\nand this\n\n" + script(range(1, 2))
    path = put(tmp_path, "s", text)
    result, recording = imported(tmp_path, path)
    assert not result.complete
    (problem,) = result.files[0].left_out
    assert (problem.count, problem.offset) == (2, len(script(range(1))))
    assert recording.read("samples").num_rows == 40


def test_usual_lines_are_read_as_any_others_are(tmp_path):
    text = script(range(3)).replace("tool", "my tool", 7)
    usual, _ = parsed(tmp_path, text)
    # One sample with other fields, and all of them are taken apart one by one.
    all_ways, _ = parsed(tmp_path, text + "tool 7/7 [000] K 2000.000000: 100000000 cpu-clock: \n" + STACK + "\n")
    assert len(usual) == 60
    assert all_ways[:-1] == usual


def test_parts_of_a_text_are_the_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(importer, "_WORTH_SHARING", 10_000)
    head = "# hostname : node-7\n#\n"
    text = re.sub(r": +\d+ cpu-clock", ": cpu-clock", script(range(20), hz=7).replace("7/7 ", "0/0 ", 30))
    path = put(tmp_path, "s", head + text + "what is this?\n\n")
    alone, one = imported(tmp_path, path, directory="one", processes=1)
    shared, several = imported(tmp_path, path, directory="several", processes=4)
    assert len(perf_script.cut_points(InputFile(path), 4)) == 3
    assert shared.files[0].rows == alone.files[0].rows == {"samples": 280}
    assert shared.files[0].left_out == alone.files[0].left_out
    assert several.facts == one.facts
    for table in ("samples", "stacks", "frames", "cpu", "sampling", "processes"):
        rows = [each.read(table) for each in (one, several)]
        keys = [(name, "ascending") for name in rows[0].schema.names if name != "frames"]
        assert rows[0].num_rows
        assert rows[0].sort_by(keys).equals(rows[1].sort_by(keys)), table


def test_a_known_text_is_read_in_none_of_its_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(importer, "_WORTH_SHARING", 10_000)
    path = put(tmp_path, "s", script(range(20), hz=7) + "what is this?\n\n")
    for known in (False, True):
        result, recording = imported(tmp_path, path, processes=4)
        (file,) = result.files
        assert (file.known, result.complete, file.rows) == (known, known, {} if known else {"samples": 280})
    assert recording.read("samples").num_rows == 280


def test_recognised_by_its_lines():
    assert looks_like_script(script(range(1)).encode())
    assert not looks_like_script(b"[   12.345678] usb 1-1: new device\n")
    assert not looks_like_script(b"a;b;c 12\n")
    assert (
        first_boot_time(b"# reference time: 2026-11-17 21:53:30.835 = 1\n" + script(range(1)).encode()) == 1000 * NANOS
    )


@pytest.mark.root
@pytest.mark.alone  # perf records the whole host
@pytest.mark.needs("perf")
def test_text_and_data_of_one_recording_are_the_same(perf, tmp_path):
    path = perf.record("both.data", "-a", "-g", "-N", "-F", "497", seconds=1.0)
    fields = "comm,pid,tid,cpu,time,period,event,ip,sym,symoff,dso"
    text = put(tmp_path, "both.txt", perf.script(path, "--ns", "--no-inline", "-F", fields))
    read = ReadOptions(cache=perf.cache)
    _, data = imported(tmp_path, path, directory="data", read=read)
    _, script_of_it = imported(tmp_path, text, directory="text", read=read)
    window = Window(0, 2**62)
    for columns in (["time_ms", "cpu", "pid", "tid", "comm", "weight_us"],):
        keys = [(name, "ascending") for name in columns]
        rows = [each.read("samples", window, columns).sort_by(keys) for each in (data, script_of_it)]
        assert rows[0].num_rows > 100
        assert rows[0].equals(rows[1])


@pytest.mark.root
@pytest.mark.needs("perf")
@pytest.mark.parametrize("flags", [("-G",), ("--show-task-events",), ("-F", "comm,tid,time,ip,sym")])
def test_what_perf_prints_with_other_flags(perf, tmp_path, flags):
    path = perf.record("flags.data", "-a", "-g", "-N", "-F", "197", seconds=0.5)
    text = perf.script(path, *flags)
    rows, intake = parsed(tmp_path, text)
    assert not list(intake.left_out)
    listed = subprocess.run(
        ["perf", "script", "-i", path, "-F", "time"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(rows) == len(listed)
