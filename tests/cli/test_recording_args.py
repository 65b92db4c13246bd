"""Windows and cores as commands take them: --last, --since, --until, S..U, and lists of cores."""

import json

import pytest
from tests.parts import sampled

from exhume.cli.main import parser_for
from exhume.cli.recording_args import RecordingView, parse_cpus
from exhume.model.clock import NANOS
from exhume.model.errors import UsageError
from exhume.model.times import UTC, format_clock, format_moment

READERS = [("diagnose",), ("incidents",), ("cores",), ("events",), ("flame", "-o", "-")]


@pytest.fixture
def view(small_recording):
    def opened(*args):
        options = parser_for(["cores"]).parse_args(["cores", "--dir", str(small_recording), "--utc", *args])
        return RecordingView.open(options), options

    return opened


def test_last_is_the_end_of_the_recording(view):
    opened, options = view("--last", "30s")
    assert opened.window(options) == opened.last(30 * NANOS)
    assert (opened.window(options).until, opened.window(options).seconds) == (opened.span.until, 30)
    assert opened.event_window(options).since == opened.span.until - 30 * NANOS


def test_a_window_is_clamped_and_has_a_default(view):
    opened, options = view()
    assert opened.window(options) == opened.span
    assert opened.window(options, default_ns=NANOS) == opened.last(NANOS)
    opened, options = view("--since", "@0", "--until", "2100-01-01T00:00:00Z")
    assert opened.window(options) == opened.span
    assert opened.event_window(options).since == 0


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("args", [("--last", "0s"), ("--last", "soon"), ("--last", "5m", "--since", "03:00")])
def test_bad_windows_are_refused_by_every_command(exhume, small_recording, command, args):
    result = exhume(*command, "--dir", str(small_recording), *args, check=False)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("form", ["rfc3339", "clock", "unix"])
def test_reversed_windows_are_refused_by_every_command(exhume, synthetic, command, form):
    directory, written = synthetic
    forms = {
        "rfc3339": lambda moment: format_moment(moment, UTC),
        "clock": lambda moment: format_clock(moment, UTC, digits=3),
        "unix": lambda moment: f"@{moment // NANOS}",
    }
    begin, end = (forms[form](written.since + seconds * NANOS) for seconds in (60, 30))
    result = exhume(*command, "--dir", str(directory), "--utc", "--since", begin, "--until", end, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert begin in result.stderr and end in result.stderr


def test_a_reversed_range_is_refused(exhume, small_recording):
    args = ("flame", "--dir", str(small_recording), "--baseline", "@1700000100..@1700000000", "-o", "-")
    assert exhume(*args, check=False).returncode == 2


def test_last_of_cores_and_events(exhume, small_recording):
    found = json.loads(exhume("cores", "--dir", str(small_recording), "--last", "20s", "--json").stdout)
    assert found["cells"] * found["cell_seconds"] == 20
    everything = json.loads(exhume("events", "--dir", str(small_recording), "--last", "1h", "--json").stdout)
    assert everything == json.loads(exhume("events", "--dir", str(small_recording), "--json").stdout)


@pytest.mark.parametrize("command", sampled([("cores",), ("incidents",), ("diagnose",), ("events",)]))
def test_colours_are_for_terminals_unless_requested(exhume, small_recording, command):
    piped = exhume(*command, "--dir", str(small_recording), check=False)
    assert "\x1b" not in piped.stdout + piped.stderr
    assert "\x1b[" in exhume(*command, "--dir", str(small_recording), "--color", "always", check=False).stdout


def test_the_message_about_last(view):
    opened, options = view("--last", "0s")
    with pytest.raises(UsageError, match=r"must be greater than 0, for example 10m"):
        opened.window(options)


@pytest.mark.parametrize(
    ("texts", "cpus"), [([], None), (["39"], {39}), (["0-3", "5"], {0, 1, 2, 3, 5}), (["0, 2,4-5"], {0, 2, 4, 5})]
)
def test_lists_of_cores(texts, cpus):
    assert parse_cpus(texts) == cpus


@pytest.mark.parametrize("text", ["one", "3-1", "²", "1-", "", "1,,2", "123456"])
def test_bad_lists_of_cores(text):
    with pytest.raises(UsageError):
        parse_cpus([text])
