"""`exhume top`: one frame for pipes and programs, and the live view on a terminal."""

import io
import json
import re
import time
from datetime import UTC

import pytest
from tests.cli.pty_program import PtyProgram
from tests.cli.test_docs import PAGES, fields_of
from tests.replay import Replay

from exhume.cli.commands.top import Follower, press
from exhume.cli.commands.top.screen import Screen
from exhume.lab.synth import write_synthetic
from exhume.model.clock import NANOS
from exhume.present.terminal.top import KEYS, Ink, TopPrinter, View
from exhume.present.top_view import Order
from exhume.store.read.recording import Recording


@pytest.fixture
def replay(synthetic, tmp_path):
    """A recorder in the middle of the incident."""
    directory, written = synthetic
    minute, since = divmod(written.incident.since - written.since, 60 * NANOS)
    with Replay(directory, tmp_path / "live", minute=minute) as replay:
        yield replay.play(since // NANOS + 4)


def live(replay, *args):
    return ("top", "--dir", str(replay.directory), "--utc", *args)


def test_a_frame_as_json(exhume, replay, synthetic):
    found = json.loads(exhume(*live(replay, "--json")).stdout)
    incident = synthetic[1].incident
    assert (found["version"], found["node"]) == (1, "synthetic-7")
    worst = found["cores"][0]
    assert (worst["cpu"], worst["comm"], worst["state"]) == (incident.cpu, incident.comm, "system")
    assert 2.0 <= worst["stall_s"] <= worst["longest_stall_s"] <= 4.0
    assert found["processes"][0]["pid"] == incident.pid
    assert found["zombies"]["count"] > 60_000
    assert found["pods"]
    # Incidents are events, which have a page of their own.
    documented = "".join((PAGES / page).read_text() for page in ("top.md", "events.md"))
    assert fields_of(found) <= set(re.findall(r"`(\w+)`", documented))


def test_piped_it_is_one_frame_of_text(exhume, replay, synthetic):
    incident = synthetic[1].incident
    for args in ((), ("--once",), ("--sort", "kernel")):
        text = exhume(*live(replay, *args)).stdout
        assert "\x1b" not in text
        assert re.search(rf"^ +{incident.pid} {incident.comm} ", text, re.MULTILINE)
        assert re.search(rf" {incident.cpu} system +100% .* ● {incident.comm}", text)
        assert max(map(len, text.splitlines())) <= 100


def test_order_and_filter(exhume, replay):
    by_wait = json.loads(exhume(*live(replay, "--json", "--sort", "wait")).stdout)["processes"]
    waits = [each["waiting"] or 0.0 for each in by_wait]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > 0
    java = json.loads(exhume(*live(replay, "--json", "--filter", "JAVA")).stdout)
    assert {each["name"] for each in java["processes"]} == {"java"}
    assert all("java" in each["name"] for each in java["pods"])
    wrong = exhume(*live(replay, "--sort", "cpuu"), check=False)
    assert (wrong.returncode, "did you mean cpu?" in wrong.stderr) == (2, True)


def test_without_a_recorder_it_says_how_to_start_one(exhume, small_recording, tmp_path):
    for directory in (small_recording, tmp_path / "nowhere"):
        result = exhume("top", "--dir", str(directory), check=False)
        assert result.returncode == 3
        assert f"exhume record --dir {directory}" in result.stderr
        assert result.stdout == ""


def test_a_recorder_without_a_tick_is_waited_for(exhume, synthetic, tmp_path, monkeypatch):
    monkeypatch.setattr("exhume.cli.commands.top.FIRST_TICK_S", 0.2)
    with Replay(synthetic[0], tmp_path / "live") as replay:
        result = exhume(*live(replay), check=False)
    assert result.returncode == 3
    assert "has not finished a tick yet" in result.stderr


def test_keys():
    view = View()
    for order in (Order.WAIT, Order.KERNEL, Order.CPU):
        assert press(view, "s")
        assert view.order is order
    for key, name in {"p": "paused", " ": "paused", "g": "containers", "?": "help", "h": "help"}.items():
        before = getattr(view, name)
        press(view, key)
        assert getattr(view, name) is not before
    for key in "/jx\x7fava":
        press(view, key)
    assert (view.typed, view.match) == ("java", "java")
    assert press(view, "q"), "a q is typed into the filter"
    press(view, "\n")
    assert (view.typed, view.match) == (None, "javaq")
    press(view, "\x1b")
    assert view.match == ""
    press(view, "/")
    press(view, "a")
    press(view, "\x1b")
    assert (view.typed, view.match) == (None, "")
    assert not press(view, "q")
    assert set("qsg/p?") == set(KEYS)


class InterruptedTerminal(io.RawIOBase):
    """A terminal without a buffer, each write to which a signal interrupts."""

    def __init__(self):
        self.written = b""

    def writable(self):
        return True

    def write(self, data):
        self.written += bytes(data[:10])
        return len(data[:10])


def test_a_frame_is_written_whole_where_a_resize_interrupts_it(monkeypatch):
    """PYTHONUNBUFFERED leaves out the buffer, which would write the rest."""
    terminal = InterruptedTerminal()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(terminal, encoding="utf-8", write_through=True))
    Screen().draw(["▀" * 40])
    assert terminal.written.decode() == "\x1b[1;1H" + "▀" * 40 + "\x1b[K"


@pytest.mark.slow
@pytest.mark.parametrize("color", [{}, {"NO_COLOR": "1"}])
def test_the_live_view(replay, synthetic, color):
    incident = synthetic[1].incident
    with PtyProgram(*live(replay), **color) as program:
        first = program.until(lambda lines: len(lines) == 24 and "q quit" in lines[-1])
        assert any(re.search(rf" {incident.cpu} system +100% .* ● {incident.comm}", line) for line in first)
        assert program.codes == {"?1049h", "?25l", *(["m"] if not color else [])}
        clock = re.search(r"\d\d:\d\d:\d\d", first[0])[0]
        replay.play(2)
        program.until(lambda lines: clock not in lines[0])
        program.send("s\x1b[A")  # an arrow is no key here
        program.until(lambda lines: "sort: wait" in lines[-1])
        program.send("/java")
        program.until(lambda lines: "filter: java" in lines[-1])
        program.send("\r")
        shown = program.until(lambda lines: "filter: java" in lines[-1] and "sort" in lines[-1])
        assert not any(incident.comm in line and "pid" not in line and "●" not in line for line in shown[9:20])
        program.send("p")
        program.until(lambda lines: "PAUSED" in lines[0])
        paused = re.search(r"\d\d:\d\d:\d\d", program.screen[0])[0]
        replay.play(2)
        program.send("?")
        program.until(lambda lines: any("this help" in line for line in lines))
        program.send("?p")
        program.until(lambda lines: "PAUSED" not in lines[0] and paused not in lines[0])
        program.resize(120, 40)
        program.until(lambda lines: len(lines) == 40 and "q quit" in lines[-1])
        program.resize(60, 16)
        program.until(lambda lines: len(lines) == 16 and "q quit" in lines[-1])
        replay.close()
        program.until(lambda lines: "STOPPED" in lines[0])
        program.send("q")
        assert program.ended() == 0
        assert program.written.endswith("\x1b[?25h\x1b[?1049l")


@pytest.mark.slow
def test_ctrl_c_and_ctrl_z_give_the_terminal_back(replay):
    with PtyProgram(*live(replay)) as program:
        program.until(lambda lines: lines and "q quit" in lines[-1])
        # The kernel does not stop a process that no shell could continue (kernel/signal.c, get_signal: orphaned process
        # groups): it gives the terminal back, and takes it again at once.
        program.send("\x1a")
        program.until(lambda lines: program.written.count("\x1b[?1049h") == 2 and lines and "q quit" in lines[-1])
        assert program.written.count("\x1b[?25h\x1b[?1049l") == 1
        program.send("\x03")
        assert program.ended() == 0
        assert program.written.endswith("\x1b[?25h\x1b[?1049l")


@pytest.mark.alone
def test_a_frame_of_96_cores_costs_little(tmp_path):
    """2% of a core, once a second: what it takes in, sums up and draws while 9,300 samples come each second."""
    source = write_synthetic(tmp_path / "source", cores=96, hours=1 / 60, seed=3).directory
    with Replay(source, tmp_path / "live") as replay:
        replay.play(10)
        follower, printer, view = Follower(Recording.open(replay.directory)), TopPrinter(Ink("always"), UTC), View()
        assert follower.wait()
        spent = 0.0
        for _ in range(20):
            replay.play(1)
            began = time.process_time()
            assert follower.poll()
            lines = printer.lines(follower.frame(view), view, 120, 40)
            spent += time.process_time() - began
            assert len(lines) == 40
        follower.close()
    assert spent / 20 < 0.02
