"""`exhume top` as lines: what fits 80 x 24, what is left where there is less, with colours and without."""

import re
from datetime import UTC

import pytest
from rich.cells import cell_len
from tests.present.test_top_view import EXPLAINED, node_of, samples, table, tick

from exhume.model.clock import NANOS
from exhume.present.terminal.top import Ink, TopPrinter, View
from exhume.present.top_view import Order

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
START = 5_000 * NANOS


def frame_of(cores=96, hot=42, seconds=30, name="kubelet"):
    """A node with one core that stalls, in its last six seconds, and zombies."""
    usual = {"user": 300, "system": 50}
    ticks = []
    for second in range(seconds):
        states = [{"system": 1000} if core == hot and second >= seconds - 6 else usual for core in range(cores)]
        ran = samples(second, (hot, 10, "kubelet", 70, 990_000), (1, 20, name, 80, 300_000))
        ticks.append(tick(second, *states, samples=ran, **(EXPLAINED if second == 0 else {})))
    mark = {"time": [START + 24 * NANOS], "source": ["recorder"], "kind": ["incident"], "severity": ["critical"]}
    ticks[-1]["events"] = table("events", **mark, text=[f"core {hot} has spent 2.8 s in the kernel so far"])
    ticks[-1]["cgroups"] = table(
        "cgroups", time=[START], hierarchy=["memory"], parent=[""], kernel=[68_680], visible=[240], dying=[68_440]
    )
    pressed = {"psi_cpu_some": [120_000], "psi_memory_some": [0], "psi_io_some": [30_000], "running": [45]}
    ticks[-1]["node"] = table("node", time=[START + 29 * NANOS], span_ms=[1000], **pressed)
    ticks[-1]["losses"] = table(
        "losses", time=[START + 29 * NANOS], source=["stacks"], kind=["lost-samples"], count=[30], text=["x"]
    )
    return node_of(*ticks).frame("node-7")


@pytest.fixture(scope="module")
def frame():
    return frame_of()


@pytest.fixture
def coloured(monkeypatch):
    for name, value in {"TERM": "xterm-256color", "COLORTERM": "truecolor"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)


def drawn(frame, width=80, height=24, color="never", keys=True, **view):
    return TopPrinter(Ink(color), UTC).lines(frame, View(**view), width, height, keys=keys)


def test_80_by_24_has_everything(frame):
    lines = drawn(frame)
    assert len(lines) == 24
    text = "\n".join(lines)
    assert lines[0].startswith("node-7  ·  03:14:30 UTC  ·  96 cores")
    assert lines[0].endswith("lost: lost-samples 30")
    assert "pressure  cpu 12%  memory 0%  io 3%  ·  45 running" in text
    assert "zombies   68,440 of 68,680 memory cgroups" in text
    assert re.search(r"^ +32-47 u+S{6}", text, re.MULTILINE), "the stalled core is seen among sixteen"
    assert re.search(r" 42 system  100% +6 s ● kubelet spin", text)
    assert re.search(r"^ +10 kubelet +99\.0% +99\.0% +–$", text, re.MULTILINE)
    assert re.search(r"^ +20 python3 +30\.0% +0\.0% +–  team/job/main$", text, re.MULTILINE)
    assert "core 42 has spent 2.8 s in the kernel" in text
    assert lines[-1].startswith("q quit")


@pytest.mark.parametrize("color", ["never", "always"])
@pytest.mark.parametrize(
    ("width", "height"), [(20, 5), (40, 12), (60, 16), (80, 24), (100, 31), (120, 40), (200, 60), (300, 90)]
)
@pytest.mark.parametrize("cores", [1, 4, 17, 96])
def test_no_line_is_longer_or_lower_than_the_terminal(coloured, cores, width, height, color):
    frame = frame_of(cores, hot=0, seconds=8, name="日本語のプログラム名です\x1b[31m")
    for view in ({}, {"help": True}, {"paused": True}, {"typed": "x" * 300}, {"order": Order.WAIT, "containers": True}):
        lines = drawn(frame, width, height, color, **view)
        assert len(lines) <= height
        assert max(cell_len(ESCAPES.sub("", line)) for line in lines) <= width
        assert "\x1b[31m" not in "\n".join(lines), "names of programs don't drive the terminal"


def test_colours_only_where_they_are_wanted(coloured, frame):
    assert "\x1b" not in "\n".join(drawn(frame))
    painted = drawn(frame, color="always")
    assert ESCAPES.sub("", painted[0]) == drawn(frame)[0]
    hot = next(line for line in painted if "kubelet spin" in line)
    # The red of system time, and bold while it goes on.
    assert re.search(r"\x1b\[1;38;2;213;94;0m +42 system", hot)
    # Two rows of cores share a line: twice as many fit.
    assert sum("▀" in line for line in painted) == 6


def test_a_small_terminal_keeps_the_losses_and_the_worst_core(frame):
    lines = drawn(frame, 40, 12)
    assert "lost: lost-samples" in lines[0]
    assert any(re.match(r" +42 system +100%", line) for line in lines)
    assert lines[-1].startswith("q quit")


def test_each_core_has_its_line_where_there_is_room():
    lines = drawn(frame_of(4, hot=2), 100, 24)
    assert [line.split()[0] for line in lines if re.match(r" +\d [uS ]+ +\d ", line)] == ["0", "1", "2", "3"]


def test_the_head_says_why_nothing_moves(frame):
    assert "PAUSED" in drawn(frame, paused=True)[0]
    assert "STOPPED" in drawn(frame, stopped=True, late_s=9.0)[0]
    assert "NO TICK FOR 9 s" in drawn(frame, late_s=9.0)[0]
    assert "TICK" not in drawn(frame, late_s=1.5)[0]


def test_the_sorted_column_is_marked(frame):
    heads = {order: next(line for line in drawn(frame, order=order) if "pid process" in line) for order in Order}
    assert [re.search(r"(\w+)▾", heads[order])[1] for order in Order] == ["CPU", "waits", "kernel"]


def test_printed_once_it_has_no_keys(frame):
    lines = drawn(frame, 100, 44, keys=False)
    assert not any("q quit" in line for line in lines)
    assert "incident: core 42" in lines[-1]


def test_an_old_incident_is_less_urgent(coloured):
    frame = frame_of(2, hot=0)
    mark = {"time": [START], "source": ["r"], "kind": ["incident"], "severity": ["critical"], "text": ["long ago"]}
    node = node_of(tick(200, {}, {}, events=table("events", **mark)))
    new = next(line for line in drawn(frame, color="always") if "incident: core 0" in line)
    old = next(line for line in drawn(node.frame("n"), color="always") if "long ago" in line)
    assert new.startswith("\x1b[1;")
    assert not old.startswith("\x1b[1;")
