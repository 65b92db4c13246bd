"""The examples in the help of every command and verb: all are parsed, the harmless ones run."""

import platform
import shlex
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.test_args import PARSERS

from exhume.cli import exit_codes
from exhume.cli.main import parser_for
from exhume.fleet.batch import to_arrow
from exhume.fleet.lake import Lake
from exhume.fleet.schema import SUMMARIES

# Where the synthetic recording, which begins at 18:00 UTC, begins at 03:11: the examples' times are in it.
ZONE = "EXAMPLE-09:11"
CORE = "5"
ANSWERED = (exit_codes.OK, exit_codes.FINDINGS)


EXAMPLES = {
    name: [line.strip() for line in (parser.epilog or "").splitlines() if line.startswith("  exhume")]
    for name, parser in PARSERS.items()
}


def args_of(example: str) -> list[str]:
    """The arguments of the program in a line for a shell."""
    _, *args = shlex.split(example.partition(" > ")[0])
    return args


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_command_and_verb_has_examples_of_itself_that_parse(name: str):
    assert EXAMPLES[name]
    for example in EXAMPLES[name]:
        assert example.startswith(name)
        args = args_of(example.replace("COMMAND", "info"))
        if "--help" in args:
            with pytest.raises(SystemExit) as ended:
                parser_for(args).parse_args(args)
            assert ended.value.code == exit_codes.OK
        else:
            parser_for(args or ["record"]).parse_args(args)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, to which examples write."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(exhume: Callable, small_recording: Path, place: Path) -> Callable[..., str]:
    """Run an example on the recording, with a lake and a core that are there; returns its output."""

    def run_example(example: str, codes: tuple[int, ...] = ANSWERED) -> str:
        assert any(example in each for each in EXAMPLES.values())
        names = {"/srv/lake": str(place / "lake"), "39": CORE}
        args = [names.get(each, each) for each in args_of(example)]
        environment = {"TZ": ZONE, "EXHUME_EVENTS_SOCKET": str(place / "events.sock")}
        result = exhume(*args, check=False, EXHUME_DIR=str(small_recording), **environment)
        assert result.returncode in codes, result.stderr
        return result.stdout

    return run_example


READING = ("diagnose", "info", "incidents", "cores", "flame", "events", "export")
# This recording has no such events, and the host may have no fixes.
EMPTY = (*ANSWERED, exit_codes.NO_DATA)


@pytest.mark.slow
@pytest.mark.parametrize("example", [each for name in READING for each in EXAMPLES[f"exhume {name}"]])
def test_examples_that_read_a_recording(run: Callable, place: Path, example: str):
    output = run(example, EMPTY if "--kind" in example else ANSWERED)
    args = args_of(example)
    files = [args[index + 1] for index, each in enumerate(args) if each in ("-o", "--html")]
    assert all((place / each).stat().st_size for each in files)
    assert output or files or "--kind" in example


@pytest.mark.parametrize("verb", ["install --dry-run", "lab list", "fix list", "fix list --json"])
def test_examples_that_change_nothing(run: Callable, verb: str):
    output = run(f"exhume {verb}", EMPTY if verb.startswith("fix") else ANSWERED)
    assert output or verb == "fix list"


def test_examples_that_report_an_event(run: Callable, place: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as recorder:
        recorder.bind(str(place / "events.sock"))
        recorder.settimeout(5)
        for example in {*EXAMPLES["exhume event"], *EXAMPLES["exhume event add"]} - {"exhume event ray --follow"}:
            run(example)
            assert recorder.recv(9000)


@pytest.mark.slow
def test_examples_of_a_fleet_with_a_lake_in_a_directory(run: Callable, place: Path):
    minute = (time.time_ns() // 1000 - 3_600_000_000) // 60_000_000 * 60_000_000
    rows = to_arrow(SUMMARIES, {"minute": [minute], "boot_id": ["1f0c"], "uptime_s": [900.0]}, "node-1")
    Lake.open(str(place / "lake")).write(SUMMARIES, rows, "a")
    run("exhume fleet compact --lake /srv/lake")
    assert run("exhume fleet token add --lake /srv/lake node-1 > node-1.token")
    assert run("exhume fleet token list --lake /srv/lake")
    run("exhume fleet token revoke --lake /srv/lake node-1")
    assert run("exhume fleet report --lake /srv/lake")


@pytest.mark.slow
def test_examples_that_compare_inventories(run: Callable, place: Path):
    inventory = run("exhume inventory --json")
    (place / "one.json").write_text(inventory)
    (place / "other.json").write_text(inventory.replace(platform.release(), "0.0.0"))
    assert "0.0.0" in run("exhume compare one.json other.json", (exit_codes.FINDINGS,))
