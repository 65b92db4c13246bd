"""Exports read by the tools that they are for: speedscope in a browser, Mozilla's profiler, Google's schema of pprof
and Go's own reader of it, Prometheus' importer. Each is fetched once, or installed; see outside_readers.py."""

import gzip
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from tests.interop.outside_readers import FIREFOX_PROFILER, SPEEDSCOPE, google_profiler, npm_package
from tests.parts import need, need_browser
from tests.system.faults.recorder_process import until

from exhume.interop.firefox import render_firefox
from exhume.interop.openmetrics import render_openmetrics
from exhume.interop.pprof import render_pprof, render_pprof_parts
from exhume.interop.speedscope import render_speedscope, render_speedscope_tracks
from exhume.interop.trace_events import trace_event_parts
from exhume.interop.tracks import CORE, parts, tracks
from exhume.library import with_busy
from exhume.model.tables import INCIDENT
from exhume.store.read.flame_tree import build_tree

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.needs("npm", "node")
def test_speedscope_opens_its_files_and_trace_events(samples, recording, window, tmp_path):
    merged, timed, trace = (tmp_path / name for name in ("merged.json", "cores.json", "trace.json"))
    merged.write_text(render_speedscope(build_tree(recording.profile(window)), "the whole"))
    timed.write_text(render_speedscope_tracks(samples, CORE, window, "by core"))
    cores, events = with_busy(recording.read("cpu", window).sort_by("wall")), recording.events(window)
    trace.write_text("".join(trace_event_parts(samples, CORE, window, cores=cores, events=events, node="n")))
    program = [sys.executable, "-m", "tests.interop.open_in_speedscope", str(npm_package(SPEEDSCOPE)), need_browser()]
    files = [str(file) for file in (merged, timed, trace)]
    done = subprocess.run([*program, *files], cwd=ROOT, capture_output=True, text=True, check=True)
    shown = json.loads(done.stdout)
    assert [each["problems"] for each in shown] == [[], [], []]
    assert "the whole" in shown[0]["text"]
    # The first of eight profiles is shown; the importer of Chrome's traces checks that slices nest.
    assert "core 0" in shown[1]["text"] and "1/8" in shown[1]["text"]
    assert "core " in shown[2]["text"] and re.search(r"\d/8", shown[2]["text"])


@pytest.mark.needs("npm", "node")
def test_the_firefox_profiler_reads_its_files(samples, recording, window, tmp_path):
    program = [need("node"), str(npm_package(FIREFOX_PROFILER) / "dist/profiler-cli.js")]
    # Short: the daemon's socket is in it, and the path of a socket has at most 107 characters.
    sessions = Path(tempfile.mkdtemp(prefix="profiler-"))
    environment = {**os.environ, "PROFILER_CLI_SESSION_DIR": str(sessions)}
    events = recording.events(window)
    (tmp_path / "profile.json").write_text(render_firefox(samples, CORE, window, events, recording.facts))

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [*program, *args, "--session", "test"]
        return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)

    def ask(*args: str) -> str:
        done = run(*args)
        assert done.returncode == 0, f"{args}: {done.stderr}"
        return done.stdout

    # `load` starts the daemon itself but waits just half a second for it, too short next to other tests.
    daemon = subprocess.Popen(
        [*program, "--daemon", str(tmp_path / "profile.json"), "--session", "test"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until("the profile is loaded", lambda: run("profile", "info", "--json").returncode == 0, every=0.5)
        info = json.loads(ask("profile", "info", "--all", "--json"))
        threads = {thread["name"]: thread for process in info["processes"] for thread in process["threads"]}
        found = tracks(samples, CORE)
        assert set(threads) == {*(track.name for track in found), "events"}
        for track in found:
            # The first sample has nothing before it that its time could be charged to.
            expected = samples.weights_us[track.rows].sum() / 1000
            assert threads[track.name]["cpuMs"] == pytest.approx(expected, abs=100)
        busiest = max(found, key=lambda track: samples.weights_us[track.rows].sum())
        handle = threads[busiest.name]["threadHandle"]
        functions = json.loads(ask("thread", "functions", "--thread", handle, "--limit", "0", "--json"))
        own = Counter()
        for row in busiest.rows.tolist():
            own[samples.frames.names[samples.stack(int(samples.stack_index[row]))[-1]]] += int(samples.weights_us[row])
        leaf, weight = own.most_common(1)[0]
        shown = {each["name"]: each for each in functions["functions"]}
        assert shown[leaf]["selfSamples"] == pytest.approx(weight / 1000, rel=0.01)
        markers = ask("thread", "markers", "--thread", threads["events"]["threadHandle"], "--json")
        assert INCIDENT in markers and any(event.kind == INCIDENT for event in events)
    finally:
        daemon.terminate()
        daemon.wait(30)
        shutil.rmtree(sessions)


def _google_schema():
    source = google_profiler() / "googlecloudprofiler/profile_pb2.py"
    spec = importlib.util.spec_from_file_location("profile_pb2", source)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("profile_pb2", module)
    spec.loader.exec_module(module)
    return module


def test_googles_schema_reads_pprof(samples, recording, window):
    profile = _google_schema().Profile()
    content = gzip.decompress(render_pprof_parts(parts(samples, CORE), window))
    assert profile.ParseFromString(content) == len(content)
    parts_of_it = (profile, profile.sample[0], profile.location[0], profile.function[0], profile.mapping[0])
    assert not any(len(UnknownFieldSet(each)) for each in parts_of_it)
    strings = list(profile.string_table)
    assert [(strings[each.type], strings[each.unit]) for each in profile.sample_type] == [
        ("samples", "count"),
        ("cpu", "nanoseconds"),
    ]
    functions = {function.id: strings[function.name] for function in profile.function}
    locations = {location.id: functions[location.line[0].function_id] for location in profile.location}
    found = Counter()
    for sample in profile.sample:
        (label,) = sample.label
        assert strings[label.key] == "cpu"
        found[int(strings[label.str]), locations[sample.location_id[0]]] += sample.value[1]
    expected = Counter()
    for row in range(len(samples)):
        leaf = samples.frames.names[samples.stack(int(samples.stack_index[row]))[-1]]
        expected[int(samples.cpus[row]), leaf] += int(samples.weights_us[row]) * 1000
    assert found == expected
    assert (profile.time_nanos, profile.duration_nanos) == (window.since, window.nanos)


@pytest.mark.long
@pytest.mark.needs("go")
def test_go_reads_pprof(samples, recording, window, tmp_path):
    whole, labelled = tmp_path / "whole.pb.gz", tmp_path / "cores.pb.gz"
    whole.write_bytes(render_pprof(build_tree(recording.profile(window)), window))
    labelled.write_bytes(render_pprof_parts(parts(samples, CORE), window))

    def ask(*args: str) -> str:
        command = [need("go"), "tool", "pprof", *args]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    total = recording.profile(window).weight_us / 1e6
    top = ask("-top", "-nodecount=3", "-unit=s", str(whole))
    assert float(re.search(r"of ([\d.]+)s total", top)[1]) == pytest.approx(total, abs=0.01)
    tags = ask("-tags", str(labelled))
    assert "cpu: Total" in tags


@pytest.mark.needs("promtool")
def test_prometheus_imports_the_figures(recording, window, tmp_path):
    cores, node = (recording.read(table, window).sort_by("wall") for table in ("cpu", "node"))
    (tmp_path / "figures.txt").write_text(render_openmetrics(cores, node))
    promtool = [need("promtool"), "tsdb"]
    made = [*promtool, "create-blocks-from", "openmetrics", str(tmp_path / "figures.txt"), str(tmp_path / "data")]
    subprocess.run(made, check=True, capture_output=True)
    # It looks for the log of a running server too.
    (tmp_path / "data/wal").mkdir()
    ask = [
        *promtool,
        "dump",
        '--match={__name__="exhume_core_state_ratio",cpu="5",state="system"}',
        str(tmp_path / "data"),
    ]
    lines = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.splitlines()
    found = sorted((int(line.split()[-1]), float(line.split()[-2])) for line in lines)
    expected = [(row["wall"] // 1_000_000, row["system"] / 1000) for row in cores.to_pylist() if row["cpu"] == 5]
    assert found == sorted(expected)
