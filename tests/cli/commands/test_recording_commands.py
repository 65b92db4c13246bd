"""The commands that look at a recording, as their users run them."""

import json
import re
from xml.etree import ElementTree

import pytest
from tests.interop.pprof_reader import read_pprof

from exhume.model.clock import NANOS
from exhume.model.times import UTC, format_moment


def moment(nanos: int) -> str:
    return format_moment(nanos, UTC)


@pytest.fixture
def incident(synthetic):
    return synthetic[1].incident


def test_info(exhume, synthetic):
    directory, written = synthetic
    found = json.loads(exhume("info", "--dir", str(directory), "--json").stdout)
    assert (found["version"], found["cores"], found["samples"]) == (2, 8, written.samples)
    assert found["span"] == {"since": format_utc(written.since), "until": format_utc(written.until)}
    assert found["recorded_seconds"] == written.seconds
    text = exhume("info", "--dir", str(directory)).stdout
    assert f"{written.samples:,}" in text
    assert "own cost" in text
    assert "losses" in text


def format_utc(nanos: int) -> str:
    """As the program shows it in a zone without an offset."""
    return format_moment(nanos, UTC).removesuffix("Z") + "+00:00"


def test_info_names_what_it_skipped(exhume, synthetic, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(synthetic[0], copy)
    segment = next(path for path in sorted(copy.iterdir()) if (path / "cpu.parquet").exists())
    (segment / "cpu.parquet").write_bytes(b"PAR1 cut short")
    (copy / "holiday.jpg").write_bytes(b"not a segment")
    cores = exhume("cores", "--dir", str(copy), "--json")
    assert json.loads(cores.stdout)["worst"] is not None
    found = json.loads(exhume("info", "--dir", str(copy), "--json").stdout)
    assert "holiday.jpg" in " ".join(entry["path"] for entry in found["skipped"])


def test_cores_find_the_incident_at_every_zoom(exhume, small_recording, incident):
    for cells in ("1", "10", "240"):
        found = json.loads(exhume("cores", "--dir", str(small_recording), "--cells", cells, "--json").stdout)
        assert found["cells"] == int(cells)
        assert found["worst"]["cpu"] == incident.cpu
        assert found["worst"]["state"] == "system"
        assert moment(incident.since - NANOS) <= found["worst"]["since"] <= moment(incident.until)
        core = next(entry for entry in found["cores"] if entry["cpu"] == incident.cpu)
        assert max(value for value in core["permille"] if value is not None) >= 990


def test_cores_as_text_has_no_colours_when_piped(exhume, small_recording, incident):
    text = exhume("cores", "--dir", str(small_recording)).stdout
    assert "\x1b" not in text
    assert f"core {incident.cpu} 100% system" in text.splitlines()[-1]
    assert "◆" in text
    assert "\x1b[" in exhume("cores", "--dir", str(small_recording), "--color", "always").stdout


def test_cores_with_an_unknown_measure(exhume, small_recording):
    result = exhume("cores", "--dir", str(small_recording), "--measure", "joy", check=False)
    assert result.returncode == 2
    assert_one_sentence(result.stderr)


def assert_one_sentence(text: str) -> None:
    assert text.startswith("exhume: ")
    assert text.count("\n") == 1
    assert "Traceback" not in text


def window_of(incident) -> tuple[str, ...]:
    return "--since", moment(incident.since), "--until", moment(incident.until)


def test_flame_shows_the_culprit(exhume, small_recording, incident, tmp_path):
    target = tmp_path / "flame.folded"
    args = ("flame", "--dir", str(small_recording), *window_of(incident), "--cpu", str(incident.cpu))
    exhume(*args, "-o", str(target))
    weights = [line.rsplit(" ", 1) for line in target.read_text().splitlines()]
    total = sum(int(weight) for _, weight in weights)
    culprit = sum(int(w) for stack, w in weights if stack.startswith(incident.comm) and incident.function in stack)
    assert culprit / total > 0.8
    assert exhume(*args, "-o", "-").stdout == target.read_text()


def test_flame_for_other_tools_holds_the_same_time(exhume, small_recording, incident, tmp_path):
    args = ("flame", "--dir", str(small_recording), *window_of(incident))
    folded = sum(int(line.rsplit(" ", 1)[1]) for line in exhume(*args, "-o", "-").stdout.splitlines())
    exhume(*args, "-o", str(tmp_path / "x.pb.gz"))
    read = read_pprof((tmp_path / "x.pb.gz").read_bytes())
    assert sum(values[1] for _, values in read.samples) == folded * 1000
    assert any(stack[0] == incident.function and stack[-1] == f"[{incident.comm}]" for stack, _ in read.samples)
    exhume(*args, "-o", str(tmp_path / "x.speedscope.json"))
    (found,) = json.loads((tmp_path / "x.speedscope.json").read_text())["profiles"]
    assert sum(found["weights"]) == folded


@pytest.mark.slow
def test_neighbouring_windows_count_nothing_twice(exhume, synthetic):
    directory, written = synthetic
    middle = written.since + 100 * NANOS + 123_456_789
    parts = [("--until", moment(middle)), ("--since", moment(middle)), ()]
    sums = []
    for part in parts:
        begin = () if "--since" in part else ("--since", moment(written.since))
        lines = exhume("flame", "--dir", str(directory), *begin, *part, "-o", "-").stdout.splitlines()
        sums.append(sum(int(line.rsplit(" ", 1)[1]) for line in lines))
    assert sums[0] + sums[1] == sums[2]


def test_filters_narrow_and_are_listed(exhume, small_recording, incident, tmp_path):
    target = tmp_path / "flame.svg"
    args = ("flame", "--dir", str(small_recording), *window_of(incident), "-o", str(target))
    exhume(*args, "--comm", incident.comm, "--pid", str(incident.pid), "--stack", f"^{incident.function}$")
    root = ElementTree.parse(target).getroot()
    names = [title.text.split("\n")[0] for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert names[:2] == ["all", incident.comm]
    assert f"thread {incident.comm}" in target.read_text()
    exhume(*args, "--pod", "default/", "--container", "default/")
    inside = target.read_text()
    assert "pod default/" in inside and "container default/" in inside and "java" in inside
    assert f"<title>{incident.comm}" not in inside, "it runs in no pod"
    nothing = exhume(*args, "--comm", "no-such-process", check=False)
    assert nothing.returncode == 3
    assert_one_sentence(nothing.stderr)


def test_a_difference_names_what_grew(exhume, small_recording, incident, tmp_path):
    target = tmp_path / "difference.html"
    before = f"{moment(incident.since - 20 * NANOS)}..{moment(incident.since)}"
    args = ("flame", "--dir", str(small_recording), *window_of(incident), "--cpu", str(incident.cpu))
    result = exhume(*args, "--baseline", before, "-o", str(target))
    assert "lru_pages: 0.0% ->" in result.stderr
    data = json.loads(re.search(r'type="application/json">(.*?)</script>', target.read_text())[1])
    flame = data["flame"]
    assert flame["differential"]
    assert flame["base_weight"][0] > 0
    assert any(now == 0 and base > 0 for now, base in zip(flame["weight"], flame["base_weight"], strict=True))


@pytest.mark.parametrize("empty", ["window", "baseline"])
def test_a_side_without_samples_is_not_compared(exhume, small_recording, incident, tmp_path, empty):
    """The culprit ran in the incident only, so that one side has samples and the other has none."""
    target = tmp_path / "difference.html"
    ranges = {
        "incident": (incident.since, incident.until),
        "quiet": (incident.since - 20 * NANOS, incident.since - NANOS),
    }
    window, before = (ranges[name] for name in (("quiet", "incident") if empty == "window" else ("incident", "quiet")))
    asked = ("--since", moment(window[0]), "--until", moment(window[1]), "--stack", f"^{incident.function}$")
    compared = ("--baseline", f"{moment(before[0])}..{moment(before[1])}", "-o", str(target))
    result = exhume("flame", "--dir", str(small_recording), *asked, *compared, check=False)
    assert result.returncode == 3
    assert_one_sentence(result.stderr)
    assert f" {empty} (" in result.stderr
    assert not target.exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("-o", "picture.png"), ".svg"),
        (("-o", "picture.json"), ".speedscope.json"),
        (("-o", "x.svg", "--format", "gif"), "svg, html, folded, pprof or speedscope"),
        (("-o", "x.pb.gz", "--baseline", "03:00..03:01"), "pprof can't hold a difference"),
        (("-o", "x.svg", "--since", "yesterday"), "not a time"),
        (("-o", "x.svg", "--baseline", "03:00"), "S..U"),
        (("-o", "x.svg", "--cpu", "one"), "not a CPU"),
        (("-o", "x.svg", "--cpu", "3-1"), "write the smaller number first, 1-3"),
        (("-o", "x.svg", "--cpu", "²"), "not a CPU"),
        (("-o", "x.svg", "--cpu", "1-"), "not a CPU"),
        (("-o", "x.svg", "--stack", "("), "; put \\ before what is meant literally"),
        (("-o", "/no/such/place/x.svg"), "can't write"),
    ],
)
def test_mistakes_are_one_sentence(exhume, small_recording, args, says, tmp_path):
    result = exhume("flame", "--dir", str(small_recording), *args, check=False)
    assert result.returncode == 2
    assert_one_sentence(result.stderr)
    assert says in result.stderr


def test_windows_are_clamped_and_empty_ones_are_no_error(exhume, synthetic):
    directory, written = synthetic
    past = exhume("events", "--dir", str(directory), "--since", "@0", "--until", "2100-01-01T00:00:00Z")
    assert past.stdout
    outside = ("--since", moment(written.until + NANOS), "--until", moment(written.until + 9 * NANOS))
    for command in (("cores",), ("flame", "-o", "-"), ("events",)):
        result = exhume(*command, "--dir", str(directory), *outside, check=False)
        assert result.returncode == 3
        assert_one_sentence(result.stderr)


def test_events_keep_the_kernels_stamp(exhume, small_recording, incident):
    found = json.loads(exhume("events", "--dir", str(small_recording), "--kind", "nic-tx-paused", "--json").stdout)
    (event,) = found["events"]
    assert event["time"] == format_utc(incident.log_time)
    assert event["kernel_us"] * 1000 == pytest.approx(event["monotonic_ns"], abs=1000)
    assert event["queue"] == incident.queue
    lines = exhume("events", "--dir", str(small_recording)).stdout.splitlines()
    assert any("nic-tx-paused" in line and format_utc(incident.log_time)[:26] in line for line in lines)


def test_no_recording_says_what_to_do(exhume, tmp_path):
    for command in (("info",), ("cores",), ("events",), ("incidents",), ("flame", "-o", "x.svg")):
        result = exhume(*command, "--dir", str(tmp_path / "nothing"), check=False)
        assert result.returncode == 3
        assert_one_sentence(result.stderr)
        assert "exhume record" in result.stderr


def test_settings_come_from_the_environment_and_flags_win(exhume, small_recording, tmp_path):
    assert exhume("info", EXHUME_DIR=str(small_recording)).stdout
    assert exhume("info", "--dir", str(small_recording), EXHUME_DIR=str(tmp_path)).stdout
    wrong = exhume("record", "--dir", str(tmp_path), EXHUME_RATE="often", check=False)
    assert wrong.returncode == 2
    assert "EXHUME_RATE" in wrong.stderr
    assert_one_sentence(wrong.stderr)


def test_times_of_day_follow_the_zone(exhume, synthetic, incident):
    """03:14:07 is local time; with --utc or Z it is not."""
    directory, _ = synthetic
    clock = moment(incident.log_time)[11:26]
    args = ("events", "--dir", str(directory), "--kind", "nic-tx-paused", "--since", clock)
    assert exhume(*args, "--utc", TZ="Asia/Tokyo").stdout
    assert exhume(*args[:-1], clock + "Z", TZ="Asia/Tokyo").stdout
    assert "+09:00" in exhume(*args[:-2], TZ="Asia/Tokyo").stdout


@pytest.mark.slow
def test_synth_and_list(exhume, tmp_path):
    assert "synth" in exhume("lab", "list").stdout
    made = exhume("lab", "synth", "--dir", str(tmp_path / "made"), "--cores", "2", "--hours", "0.02")
    assert "2 cores" in made.stdout
    again = exhume("lab", "synth", "--dir", str(tmp_path / "made"), "--cores", "2", "--hours", "0.02", check=False)
    assert again.returncode == 2
    assert_one_sentence(again.stderr)


@pytest.mark.slow
def test_synth_without_a_directory_says_where_it_wrote(exhume, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert exhume("lab", "synth", "--cores", "2", "--hours", "0.02").stdout.startswith("exhume-synth: 2 cores")
    assert exhume("info", "--dir", "exhume-synth").stdout


def test_a_kind_that_is_not_there_gets_those_that_are(exhume, small_recording):
    result = exhume("events", "--dir", str(small_recording), "--kind", "nosuch", check=False)
    assert result.returncode == 3
    assert_one_sentence(result.stderr)
    assert "nosuch" in result.stderr
    assert "nic-tx-paused" in result.stderr


def test_a_directory_of_something_else_is_not_to_be_recorded_into(exhume, tmp_path):
    (tmp_path / "passwd").touch()
    result = exhume("info", "--dir", str(tmp_path), check=False)
    assert result.returncode == 3
    assert_one_sentence(result.stderr)
    assert "exhume record" not in result.stderr


@pytest.mark.parametrize("args", [("--for", "-5s"), ("--for=-5s",)])
def test_a_negative_time_is_a_sentence(exhume, tmp_path, args):
    result = exhume("record", "--dir", str(tmp_path / "none"), *args, check=False)
    assert result.returncode == 2
    assert_one_sentence(result.stderr)
    assert "'-5s' is too little: write 1s or more" in result.stderr


def test_help_says_that_comm_is_a_thread(exhume):
    assert "Only threads of this name." in exhume("flame", "--help").stdout


def test_cores_of_some_cores_only(exhume, small_recording, incident):
    args = ("--dir", str(small_recording), "--json")
    other = (incident.cpu + 1) % 8
    found = json.loads(exhume("cores", *args, "--cpu", str(other)).stdout)
    assert [core["cpu"] for core in found["cores"]] == [other]
    assert found["worst"]["cpu"] == other
    both = json.loads(exhume("cores", *args, "--cpu", f"{other},{incident.cpu}").stdout)
    assert both["worst"]["cpu"] == incident.cpu
    for command in ("events", "incidents"):
        events = json.loads(exhume(command, *args, "--cpu", str(incident.cpu), check=False).stdout)[command]
        assert events
        assert {event["cpu"] for event in events} == {incident.cpu}
    missing = exhume("cores", *args, "--cpu", "999", check=False)
    assert missing.returncode == 3
    assert exhume("events", *args, "--cpu", "0-", check=False).returncode == 2
