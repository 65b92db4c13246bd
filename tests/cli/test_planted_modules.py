"""Every command, run in a directory full of modules that another user left there: none of them is loaded."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from exhume.cli.main import COMMANDS
from exhume.model.isolation import isolated_python

# As it is installed: a file, whose own directory comes first in sys.path.
EXHUME = "from exhume.cli.main import run\nif __name__ == '__main__':\n    run()\n"
OTHERS = ("exhume", "numpy", "pyarrow", "rich", "uvicorn", "starlette", "jeepney", "sitecustomize", "usercustomize")
CASES = {
    "bare": "",
    "record": "record --dir {new} --for 1s",
    "doctor": "doctor --for 2s",
    "diagnose": "diagnose --dir {dir}",
    "top": "top --dir {dir} --once",
    "info": "info --dir {dir}",
    "incidents": "incidents --dir {dir}",
    "cores": "cores --dir {dir}",
    "flame": "flame --dir {dir} -o {new}.svg",
    "export": "export bundle --dir {dir} -o {new}.zip",
    "import": "import {logs} --dir {new}",
    "events": "events --dir {dir}",
    "event": "event add --events-socket {new} died",
    "health": "health --dir {dir}",
    "install": "install --dry-run",
    "uninstall": "uninstall --dry-run",
    "audit": "audit --dir {dir} --hours 1",
    "zombies": "zombies --dir {dir} --explain",
    "fix plan": "fix plan --dir {dir} --work-dir {new}",
    "fix plan zombies": "fix plan zombies --work-dir {new}",
    "fix apply zombies": "fix apply zombies --only fadvise --yes --baseline 0s --work-dir {new}",
    "fleet report": "fleet report --lake {new}",
    "inventory": "inventory --json",
    "compare": "compare . {dir}",
    "fix list": "fix list --work-dir {new}",
    "lab list": "lab list --work {new}",
    "lab run": "lab run user-hog --for 1s --work {new}",
    "lab clean": "lab clean --work {new}",
    # Two minutes and more are written by several processes.
    "lab synth": "lab synth --dir {new} --cores 2 --hours 0.15",
}


@pytest.fixture
def trap(tmp_path):
    """A directory with a module of every name that exhume imports; each leaves a mark when it is loaded."""
    directory, marks = tmp_path / "trap", tmp_path / "marks"
    directory.mkdir()
    marks.mkdir()
    for name in {*sys.stdlib_module_names, *OTHERS} - set(sys.builtin_module_names):
        code = f"open({str(marks / name)!r}, 'w').close()\nraise ImportError({name!r})\n"
        (directory / f"{name}.py").write_text(code)
    package = directory / "exhume"
    package.mkdir()
    (package / "__init__.py").write_text(f"open({str(marks / 'package')!r}, 'w').close()\n")
    program = tmp_path / "bin" / "program"
    program.parent.mkdir()
    program.write_text(EXHUME)
    return directory, marks, [sys.executable, str(program)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("EXHUME_", "PYTHON"))}
    return clean | {"HOME": str(home), "EXHUME_LISTEN": "127.0.0.1:0", "EXHUME_FOR": "2s"}


def loaded(marks: Path) -> list[str]:
    return sorted(path.name for path in marks.iterdir())


def test_the_modules_of_the_trap_are_loaded_where_nothing_prevents_it(trap, environment):
    directory, marks, _ = trap
    subprocess.run([sys.executable, "-m", "exhume"], cwd=directory, env=environment, check=False, capture_output=True)
    assert loaded(marks)


def test_every_command_is_tried():
    assert {case.split()[0] for case in CASES} | {"serve", "fix", "lab", "demo"} == {*COMMANDS, "bare"}


@pytest.mark.root
@pytest.mark.parametrize("case", CASES)
def test_no_command_loads_a_planted_module(case, trap, environment, small_recording, tmp_path):
    directory, marks, program = trap
    logs = [tmp_path / f"{hour}.log" for hour in (1, 2)]
    for hour, log in enumerate(logs):
        log.write_text(f"2026-01-01T0{hour}:00:00,000000+00:00 hello\n")
    named = {"dir": small_recording, "new": tmp_path / "new", "logs": " ".join(map(str, logs))}
    words = CASES[case].format(**named).split()
    done = subprocess.run(
        [*program, *words],
        cwd=directory,
        env=environment | {"EXHUME_DIR": str(tmp_path / "new")} if case == "bare" else environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert loaded(marks) == [], done.stderr
    assert "Traceback" not in done.stderr
    # A node without systemd and containers has nothing to audit, or to plan for.
    nothing = {
        "audit": (0, 1, 3),
        # No recorder listens, or runs.
        "event": (3,),
        "health": (3,),
        "top": (3,),
        "fleet report": (3,),
        # Without systemd there is nothing to install into, or to remove.
        "install": (0, 2),
        "uninstall": (0, 2, 3),
        "fix plan": (0, 3),
        "fix plan zombies": (0, 3),
        "fix apply zombies": (0, 2),
        "fix list": (3,),
    }
    assert done.returncode in nothing.get(case, (0, 1)), done.stderr


@pytest.mark.slow
def test_the_server_loads_no_planted_module(trap, environment, small_recording):
    directory, marks, program = trap
    words = ["serve", "--dir", str(small_recording), "--listen", "127.0.0.1:0", "--no-open"]
    server = subprocess.Popen([*program, *words], cwd=directory, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        link = server.stdout.readline().split()[1]
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with urllib.request.urlopen(f"{link}api/recording", timeout=60) as answer:
                if answer.status == 200:
                    break
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    assert loaded(marks) == []


@pytest.mark.slow
def test_steps_of_a_score_load_no_planted_module(trap, environment, small_recording):
    directory, marks, _ = trap
    command = isolated_python("exhume.lab.score.answer", small_recording)
    subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True, timeout=120)
    assert loaded(marks) == []


def test_workers_of_a_remedy_load_no_planted_module(trap, monkeypatch, tmp_path):
    from threading import Event

    from exhume.control.worker import Workers

    directory, marks, _ = trap
    (tmp_path / "setting").touch()
    monkeypatch.chdir(directory)
    done = Workers(Event()).run({"job": "settings", "values": [(str(tmp_path / "setting"), "7")]}, 60)
    assert (done.complete, done.error, loaded(marks)) == (True, 0, [])


@pytest.mark.root
def test_a_program_of_the_current_directory_is_not_run(trap, environment, tmp_path):
    """Relative entries of PATH, for what the lab starts by name."""
    directory, marks, program = trap
    for name in ("mount", "ip", "true"):
        (directory / name).write_text(f"#!/bin/sh\n: > {marks / name}\n")
        (directory / name).chmod(0o755)
    subprocess.run(
        [*program, "lab", "run", "mount-storm", "--for", "1s", "--work", str(tmp_path / "new")],
        cwd=directory,
        env=environment | {"PATH": f".:{environment['PATH']}"},
        check=False,
        capture_output=True,
        timeout=120,
    )
    assert loaded(marks) == []
