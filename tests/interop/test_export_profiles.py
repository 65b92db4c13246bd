"""Profiles for other tools: stacks, times, cores and threads are those of the recording.

OTLP is read by the published protocol buffers; the other formats by what their schemas say, and by the tools themselves
in test_export_readers.py."""

import json
from collections import Counter

import pytest
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
from tests.interop.pprof_reader import read_pprof

from exhume.interop.firefox import render_firefox
from exhume.interop.folded import render_folded_parts
from exhume.interop.otlp import render_otlp
from exhume.interop.pprof import render_pprof_parts
from exhume.interop.speedscope import render_speedscope_tracks
from exhume.interop.trace_events import CORES_PID, EVENTS_PID, trace_event_parts
from exhume.interop.tracks import BY, CORE, SLACK_US, THREAD, parts, tracks
from exhume.library import with_busy
from exhume.model.clock import NANOS
from exhume.model.tables import INCIDENT


def sums(samples, key):
    """CPU time in microseconds by track, command and stack."""
    found = Counter()
    for row in range(len(samples)):
        frames = [samples.frames.names[frame] for frame in samples.stack(int(samples.stack_index[row]))]
        found[(key(row), samples.comms[int(samples.comm_index[row])], *frames)] += int(samples.weights_us[row])
    return found


def by_core(samples):
    return sums(samples, lambda row: int(samples.cpus[row]))


def by_thread(samples):
    return sums(samples, lambda row: int(samples.tids[row]))


def test_pprof_samples_are_labelled_with_their_core(samples, window):
    read = read_pprof(render_pprof_parts(parts(samples, CORE), window))
    found = Counter()
    for (stack, values), labels in zip(read.samples, read.labels, strict=True):
        comm, *frames = reversed(stack)
        found[(int(labels["cpu"]), comm.strip("[]"), *frames)] += values[1] // 1000
    assert found == by_core(samples)


def test_pprof_samples_are_labelled_with_their_thread(samples, window):
    read = read_pprof(render_pprof_parts(parts(samples, THREAD), window))
    found = Counter()
    for (_, values), labels in zip(read.samples, read.labels, strict=True):
        found[int(labels["pid"]), int(labels["tid"])] += values[0]
    assert found == Counter(zip(samples.pids.tolist(), samples.tids.tolist(), strict=True))


def test_folded_lines_begin_with_their_core(samples):
    found = Counter()
    for line in render_folded_parts(parts(samples, CORE)).splitlines():
        stack, weight = line.rsplit(" ", 1)
        core, *frames = stack.split(";")
        found[(int(core.removeprefix("core ")), *frames)] += int(weight)
    # Names of Java's types have a semicolon, which would end the frame.
    expected = Counter()
    for (core, *names), weight in by_core(samples).items():
        expected[(core, *(name.replace(";", ":") for name in names))] += weight
    assert found == expected


@pytest.mark.parametrize(("by", "expected"), [(CORE, by_core), (THREAD, by_thread)])
def test_speedscope_has_a_profile_on_the_time_axis_for_each(samples, window, by, expected):
    document = json.loads(render_speedscope_tracks(samples, by, window, "node"))
    names = [frame["name"] for frame in document["shared"]["frames"]]
    found = Counter()
    for profile, track in zip(document["profiles"], tracks(samples, by), strict=True):
        assert profile["name"] == track.name
        assert profile["endValue"] == sum(profile["weights"]) >= window.nanos // 1000
        now, rows = 0, iter(track.rows.tolist())
        for stack, weight in zip(profile["samples"], profile["weights"], strict=True):
            if stack:
                found[(dict(track.labels)["cpu" if by == CORE else "tid"], *(names[each] for each in stack))] += weight
                taken = (int(samples.walls[next(rows)]) - window.since) // 1000
                # Where no sample before it took its place it is where it was taken.
                assert now >= taken - SLACK_US
            now += weight
    assert found == expected(samples)


@pytest.mark.parametrize("by", BY)
def test_trace_events_nest_and_have_every_second_of_cpu_time(samples, recording, window, by):
    cores = with_busy(recording.read("cpu", window).sort_by("wall"))
    events = recording.events(window)
    document = json.loads("".join(trace_event_parts(samples, by, window, cores=cores, events=events, node="node-1")))
    slices = [event for event in document["traceEvents"] if event["ph"] == "X"]
    of_track: dict[tuple[int, int], list] = {}
    for each in slices:
        of_track.setdefault((each["pid"], each["tid"]), []).append(each)
    assert len(of_track) == len(tracks(samples, by))
    outermost = 0
    for found in of_track.values():
        # Read as viewers do: in their order, what comes first is outside.
        assert [each["ts"] for each in found] == sorted(each["ts"] for each in found)
        opened: list[dict] = []
        for each in found:
            while opened and opened[-1]["ts"] + opened[-1]["dur"] <= each["ts"]:
                opened.pop()
            if opened:
                assert each["ts"] + each["dur"] <= opened[-1]["ts"] + opened[-1]["dur"]
            else:
                assert each["cat"] == "thread"
                outermost += each["dur"]
            opened.append(each)
            assert window.since // 1000 <= each["ts"]
    assert outermost == int(samples.weights_us.sum())
    names = {
        (each["pid"], each["tid"]): each["args"]["name"]
        for each in document["traceEvents"]
        if each["name"] == "thread_name"
    }
    if by == CORE:
        assert {names[CORES_PID, cpu + 1] for cpu in range(8)} == {f"core {cpu}" for cpu in range(8)}
    counters = [each for each in document["traceEvents"] if each["ph"] == "C"]
    assert len(counters) == cores.num_rows
    assert max(each["args"]["percent"] for each in counters) == 100.0
    instants = [each for each in document["traceEvents"] if each["ph"] == "i"]
    assert [each["args"]["text"] for each in instants] == [event.text for event in events]
    marks = [each for each in instants if each["cat"] == INCIDENT]
    assert marks and all(each["s"] == "g" and each["pid"] == EVENTS_PID for each in marks)
    assert [each["ts"] for each in instants] == [event.wall // 1000 for event in events]


@pytest.mark.parametrize(("by", "expected"), [(CORE, by_core), (THREAD, by_thread)])
def test_firefox_has_every_sample_at_its_time(samples, recording, window, by, expected):
    events = recording.events(window)
    document = json.loads(render_firefox(samples, by, window, events, recording.facts))
    shared = document["shared"]
    strings, stacks = shared["stringArray"], shared["stackTable"]

    def frames(stack: int) -> list[str]:
        found = []
        while True:
            found.append(strings[shared["funcTable"]["name"][shared["frameTable"]["func"][stacks["frame"][stack]]]])
            if not stacks["prefixOffset"][stack]:
                return found[::-1]
            stack -= stacks["prefixOffset"][stack]

    for table in (
        *shared.values(),
        *(t["samples"] for t in document["threads"]),
        *(t["markers"] for t in document["threads"]),
    ):
        if isinstance(table, dict):
            columns = {name: column for name, column in table.items() if isinstance(column, list)}
            assert {len(column) for column in columns.values()} <= {table["length"]}
    found = Counter()
    *threads, events_thread = document["threads"]
    for thread, track in zip(threads, tracks(samples, by), strict=True):
        table, now = thread["samples"], 0.0
        rows = zip(table["stack"], table["timeDeltas"], table["threadCPUDelta"], track.rows.tolist(), strict=True)
        for stack, delta, weight, row in rows:
            now += delta
            assert abs(now * 1e6 + window.since - int(samples.walls[row])) < 1e6
            found[(dict(track.labels)["cpu" if by == CORE else "tid"], *frames(stack))] += weight
    assert found == expected(samples)
    assert [data["text"] for data in events_thread["markers"]["data"]] == [event.text for event in events]
    assert document["meta"]["startTime"] == window.since / 1e6


def test_otlp_is_what_the_published_messages_say(samples, recording, window):
    content = render_otlp(samples, window, recording.facts)
    request, data = ExportProfilesServiceRequest(), ProfilesData()
    assert request.ParseFromString(content) == data.ParseFromString(content) == len(content)
    # Nothing in it that the schema does not know.
    assert data.SerializeToString(deterministic=True) == request.SerializeToString(deterministic=True)
    assert data.ByteSize() == len(content)
    tables, strings = data.dictionary, data.dictionary.string_table
    for table in (tables.mapping_table, tables.location_table, tables.function_table, tables.link_table,
                  tables.attribute_table, tables.stack_table):  # fmt: skip
        assert table[0].ByteSize() == 0
    assert strings[0] == "" and len(set(strings)) == len(strings)
    (resource,) = data.resource_profiles
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert attributes["host.name"] == recording.facts.node and attributes["service.name"] == "exhume"
    (profile,) = resource.scope_profiles[0].profiles
    kind = profile.sample_type
    assert (strings[kind.type_strindex], strings[kind.unit_strindex]) == ("cpu", "nanoseconds")
    assert (profile.time_unix_nano, profile.duration_nano) == (window.since, window.nanos)
    assert len(profile.profile_id) == 16
    found, taken = Counter(), []
    identities = set()
    for sample in profile.samples:
        about = {}
        for index in sample.attribute_indices:
            each = tables.attribute_table[index]
            about[strings[each.key_strindex]] = getattr(each.value, each.value.WhichOneof("value"))
        stack = [
            tables.location_table[index].lines[0].function_index
            for index in tables.stack_table[sample.stack_index].location_indices
        ]
        names = [strings[tables.function_table[index].name_strindex] for index in reversed(stack)]
        assert len(sample.values) == len(sample.timestamps_unix_nano)
        assert list(sample.timestamps_unix_nano) == sorted(sample.timestamps_unix_nano)
        found[(about["cpu.logical_number"], about["thread.name"], *names)] += sum(sample.values) // 1000
        taken += [
            (stamp, about["cpu.logical_number"], about["process.pid"], about["thread.id"])
            for stamp in sample.timestamps_unix_nano
        ]
        identities.add((sample.stack_index, *sample.attribute_indices))
    assert found == by_core(samples)
    assert len(identities) == len(profile.samples)
    columns = (samples.walls, samples.cpus, samples.pids, samples.tids)
    assert sorted(taken) == sorted(zip(*(column.tolist() for column in columns), strict=True))
    modules = {strings[mapping.filename_strindex] for mapping in tables.mapping_table[1:]}
    assert modules == {module for module in samples.frames.modules if module}


def test_the_same_samples_are_the_same_profile(samples, recording, window):
    assert render_otlp(samples, window, recording.facts) == render_otlp(samples, window, recording.facts)


def test_too_many_samples_are_refused(recording, window):
    from exhume.model.errors import UsageError

    with pytest.raises(UsageError):
        recording.sample_table(window, most=100)
    assert len(recording.sample_table(window, most=10_000_000)) > 100


def test_samples_in_the_order_of_time_over_all_segments(recording):
    found = recording.sample_table(recording.span())
    assert len(found) == recording.read("samples").num_rows
    walls = found.walls.tolist()
    assert walls == sorted(walls)
    assert walls[-1] - walls[0] > 200 * NANOS
