"""`exhume demo` as a new user runs it: the walk, the page, and nothing left when it ends."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from exhume.cli.commands.demo import add_options

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "exhume.cli.main", "demo", "--no-open", "--utc"]
PATIENCE_S = 120
LINK = re.compile(r"http://localhost:\d+/")


def environment(scratch: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EXHUME_")}
    return {**kept, "TMPDIR": str(scratch), "COLUMNS": "80"}


def read_until(descriptor: int, text: str, shown: str = "") -> str:
    """All that was shown, once the text is in it."""
    until = time.monotonic() + PATIENCE_S
    while text not in shown:
        assert select.select([descriptor], [], [], until - time.monotonic())[0], shown
        shown += os.read(descriptor, 65536).decode(errors="replace")
    return shown


@pytest.fixture
def taken_port() -> Iterator[int]:
    """The usual port is taken: by this test, or by whatever has it already."""
    with socket.socket() as taken:
        with suppress(OSError):
            taken.bind(("127.0.0.1", 8420))
            taken.listen()
        yield 8420


def test_it_walks_step_by_step_and_ends_with_ctrl_c(tmp_path, taken_port):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execvpe(COMMAND[0], COMMAND, environment(scratch))
    try:
        shown = read_until(terminal, "Enter for the next step")
        count = int(re.search(r"\[1/(\d+)\]", shown)[1])
        for number in range(2, count + 1):
            os.write(terminal, b"\n")
            shown = read_until(terminal, f"[{number}/{count}]", shown)
        shown = read_until(terminal, "until you press Ctrl-C", shown)
        link = LINK.search(shown)[0]
        assert urlsplit(link).port != taken_port
        with urlopen(f"{link}api/recording") as answer:
            assert json.load(answer)["cores"] == 96
        with urlopen(f"{link}api/incidents") as answer:
            assert len(json.load(answer)["incidents"]) == 1
        os.write(terminal, b"\x03")
        _, status = os.waitpid(pid, 0)
        pid = 0
    finally:
        os.close(terminal)
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert list(scratch.iterdir()) == []
    with pytest.raises(URLError):
        urlopen(link)
    # What the diagnosis found, not what was planted: core, process, function and the leaker.
    for expected in ("core 39", "kubelet", "nr_lru_pages", "root cause", "exhume fix"):
        assert expected in " ".join(shown.split())
    assert all(len(line) <= 80 for line in shown.splitlines() if "http" not in line and "exhume fix" not in line)


def test_in_a_pipe_it_prints_all_steps_and_keeps_what_is_requested(tmp_path):
    scratch, kept = tmp_path / "scratch", tmp_path / "kept"
    scratch.mkdir()
    command = [*COMMAND, "--keep", str(kept), "--listen", "127.0.0.1:0"]
    demo = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment(scratch))
    assert demo.stdout is not None
    try:
        shown = read_until(demo.stdout.fileno(), "until you press Ctrl-C")
        # A view on the page is part of a link.
        views = [urlsplit(link).fragment for link in re.findall(r"http://\S+", shown)]
        assert any("cpus=39" in view and "tab=diagnosis" in view for view in views)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(PATIENCE_S) == 0
    finally:
        demo.kill()
        demo.wait()
        demo.stdout.close()
    assert list(scratch.iterdir()) == []
    assert len(list(kept.glob("2*"))) == 5


def test_ctrl_c_while_it_writes_leaves_nothing(tmp_path):
    demo = subprocess.Popen(COMMAND, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(tmp_path))
    assert demo.stderr is not None
    try:
        read_until(demo.stderr.fileno(), "making up")
        until = time.monotonic() + PATIENCE_S
        while not list(tmp_path.glob("*/recording/live/*")) and time.monotonic() < until:
            time.sleep(0.02)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(PATIENCE_S) == 130
    finally:
        demo.kill()
        demo.wait()
        demo.stderr.close()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_holds_something_is_refused(exhume, tmp_path):
    (tmp_path / "mine").touch()
    result = exhume("demo", "--no-open", "--keep", str(tmp_path), check=False)
    assert result.returncode == 2
    assert "is not empty" in result.stderr


def test_the_first_name_of_no_open_works_and_is_not_offered():
    parser = ArgumentParser()
    add_options(parser)
    assert parser.parse_args(["--no-browser"]).no_open
    assert parser.parse_args(["--no-open"]).no_open
    assert not parser.parse_args([]).no_open
    assert "--no-open" in parser.format_help()
    assert "--no-browser" not in parser.format_help()
