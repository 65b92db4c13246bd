"""Every answer of the page's server is what the store says, at every zoom and under every filter."""

import gzip
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.diagnose.scenes import Scene
from tests.present.web.wire import counts, heat, kernel_counts

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.present.web.app import create_app
from exhume.present.web.guard import Rules
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.handlers.recording import status
from exhume.present.web.params import QueryParams
from exhume.store.read.core_grid import MEASURES, MOST_PERMILLE
from exhume.store.read.profile import ProfileFilter

ROOT = Path(__file__).resolve().parents[3]


def ms(wall: int) -> int:
    return wall // MILLIS


@pytest.fixture(scope="module")
def incident(written):
    return written[1].incident


@pytest.fixture(scope="module")
def around(incident):
    """The incident's core and time, as a request asks for them."""
    return f"since={ms(incident.since)}&until={ms(incident.until) + 1000}&cpus={incident.cpu}"


def test_the_recording_as_a_whole(client, recording):
    body = client.get("/api/recording").json()
    span = recording.span()
    assert (body["since"], body["until"]) == (ms(span.since), ms(span.until))
    assert (body["node"], body["cores"], body["kernel"]) == (recording.facts.node, 8, recording.facts.kernel)
    assert body["state"] == "ready"
    assert not body["live"]
    assert body["lost"] == sum(loss.count for loss in recording.losses())
    assert body["cost"]["memory_mb"] > 0


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("cells", [24, 240, 2000])
def test_cores_are_the_stores_at_every_zoom(client, recording, measure, cells):
    header, values, states = heat(client.get(f"/api/cores?cells={cells}&measure={measure}"))
    grid = recording.cores(recording.span(), cells, measure)
    assert header["cpus"] == grid.cpus
    recorded = grid.values >= 0
    assert ((values == header["unrecorded"]) == ~recorded).all()
    assert (values[recorded] == np.minimum(grid.values[recorded], MOST_PERMILLE)).all()
    assert (states[recorded] == grid.dominant[recorded]).all()


@pytest.mark.slow
def test_one_bad_second_is_seen_in_the_coarsest_view(tmp_path):
    scene = Scene(cores=32, seconds=1500)
    scene.core(17, 700, 701, system=990)
    scene.write(tmp_path / "r")
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as client:
        header, values, states = heat(client.get("/api/cores?cells=5&measure=busy"))
        core, cell = np.unravel_index(np.argmax(np.where(values == header["unrecorded"], 0, values)), values.shape)
        assert (header["cpus"][core], cell) == (17, 2)
        assert header["states"][states[core, cell]] == "system"


def test_a_window_is_clamped_and_an_empty_one_is_empty(client, recording):
    span = recording.span()
    header, values, _ = heat(client.get(f"/api/cores?since=0&until={ms(span.until) + 10_000_000}&cells=10"))
    assert (header["since"], header["until"]) == (ms(span.since), ms(span.until))
    header, values, _ = heat(
        client.get(f"/api/cores?since={ms(span.until) + 5000}&until={ms(span.until) + 9000}&cells=10")
    )
    assert values.size == 0
    assert client.get(f"/api/flame?since={ms(span.until)}&until={ms(span.until)}").json()["samples"] == 0
    assert client.get("/api/processes?since=5&until=5").json()["processes"] == []
    assert client.get("/api/subsecond?since=5&until=5").status_code == 200


def test_a_cell_has_its_worst_second_and_top_threads(client, incident):
    body = client.get(f"/api/cell?at={ms(incident.since)}&cpu={incident.cpu}&span=8000&measure=system").json()
    states = {state["name"]: state["permille"] for state in body["states"]}
    assert states["system"] > 900
    assert body["top"][0]["comm"] == incident.comm
    assert body["since"] < body["until"]
    assert client.get("/api/cell?at=5&cpu=3").json()["states"] == []


def test_lanes_hold_the_greatest_value_of_each_cell(client, recording):
    body = client.get("/api/lanes?cells=12").json()
    lanes = {lane["name"]: {line["name"]: line["values"] for line in lane["series"]} for lane in body["lanes"]}
    rows = recording.read("cgroups").to_pylist()
    assert max(v for v in lanes["memcgs"]["kernel"] if v is not None) == max(
        row["kernel"] for row in rows if row["parent"] == "" and row["kernel"] is not None
    )
    node = recording.read("node", None, ["psi_cpu_some", "span_ms"]).to_pylist()
    most = max(row["psi_cpu_some"] / row["span_ms"] / 10 for row in node if row["psi_cpu_some"] is not None)
    assert max(v for v in lanes["pressure"]["cpu"] if v is not None) == pytest.approx(most, rel=1e-3)
    assert all(len(values) == 12 for lane in lanes.values() for values in lane.values())


def test_a_view_of_a_second_has_the_nearest_measurements(client, recording):
    rows = recording.read("cgroups", None, ["wall", "parent", "kernel"]).to_pylist()
    first, second = [row for row in rows if row["parent"] == "" and row["kernel"] is not None][3:5]
    assert second["wall"] - first["wall"] > 3 * NANOS
    body = client.get(f"/api/lanes?since={ms(first['wall']) + 1000}&until={ms(first['wall']) + 2000}&cells=5").json()
    kernel = {line["name"]: line for lane in body["lanes"] if lane["name"] == "memcgs" for line in lane["series"]}[
        "kernel"
    ]
    assert kernel["values"] == [None] * 5
    assert kernel["before"] == [ms(first["wall"]), first["kernel"]]
    assert kernel["after"] == [ms(second["wall"]), second["kernel"]]


def test_events_and_their_marks(client, recording):
    body = client.get("/api/events?limit=5000").json()
    every = recording.events()
    logged = {(each.wall, each.kind, f"{each.source}: {each.text}") for each in every}
    repeats = [each for each in every if each.kind == "incident" and (each.wall, each.trigger, each.text) in logged]
    assert repeats and body["total"] == len(every) - len(repeats)
    assert [event["at"] for event in body["events"]] == sorted(event["at"] for event in body["events"])
    counted = {each["kind"]: each["count"] for each in body["kinds"]}
    assert counted == Counter(event["kind"] for event in body["events"])
    kind = min(counted)
    only = client.get(f"/api/events?kinds={kind}&limit=1").json()
    assert only["events"][0]["kind"] == kind
    assert only["truncated"] == (only["total"] > 1)
    assert (only["total"], only["kinds"]) == (counted[kind], body["kinds"])
    found = client.get("/api/events", params={"text": only["events"][0]["text"].upper(), "kinds": "no-such"}).json()
    assert (found["total"], [each["kind"] for each in found["kinds"]]) == (0, [kind])
    marks = client.get("/api/marks?cells=20").json()["marks"]
    assert sum(mark["count"] for mark in marks if mark["kind"] != "lost") == body["total"]


def test_what_was_lost_is_marked_when_it_was(tmp_path):
    scene = Scene(cores=1, seconds=20)
    scene.row("losses", 7, source="perf", kind="overrun", count=31, text="the buffer was full")
    loss = scene.write(tmp_path / "r").losses()[0]
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as client:
        [mark] = client.get("/api/marks").json()["marks"]
        assert (mark["kind"], mark["at"], mark["severity"]) == ("lost", ms(loss.wall), "warning")
        assert "31" in mark["text"]
        assert client.get(f"/api/marks?until={mark['at']}").json()["marks"] == []


def test_a_change_that_loses_nothing_is_no_loss(tmp_path):
    scene = Scene(cores=1, seconds=20)
    for second, kind, rate_hz in ((5, "rate-lowered", 48), (6, "rate-lowered", 24), (9, "rate-raised", 97)):
        scene.row("losses", second, source="stacks", kind=kind, count=rate_hz, text=f"now {rate_hz} Hz")
    scene.write(tmp_path / "r")
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as client:
        body = client.get("/api/recording").json()
        assert [(loss["kind"], loss["count"]) for loss in body["losses"]] == [("rate-lowered", 2)]
        assert body["lost"] == status(RecordingHandle(tmp_path / "r"), QueryParams())["lost"] == 2
        events = client.get("/api/events").json()["events"]
        assert [(each["kind"], each["severity"]) for each in events] == [
            *[("lost", "warning")] * 2,
            ("recorder", "info"),
        ]
        assert events[0]["text"] == "stacks: rate-lowered, now 48 Hz"


def test_incidents_get_their_causes(client, incident):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = client.get("/api/incidents").json()["incidents"]
        if found and all(each["state"] != "waiting" for each in found):
            break
        time.sleep(0.2)
    assert [each["cause"] for each in found] == ["zombie-memcgs"]
    assert found[0]["cpus"] == [incident.cpu]
    assert found[0]["since"] <= ms(incident.until)
    assert found[0]["until"] >= ms(incident.since)
    assert 0 < found[0]["confidence"] <= 1


def shares(body: dict) -> dict[str, float]:
    """The inclusive share of each frame."""
    found: dict[str, float] = {}
    for label, weight in zip(body["label"], body["weight"], strict=True):
        name = body["labels"]["name"][label]
        found[name] = found.get(name, 0) + weight / max(1, body["weight"][0])
    return found


def test_a_flame_graph_of_one_core(client, recording, around, incident):
    body = client.get(f"/api/flame?{around}").json()
    profile = recording.profile(
        Window(ms(incident.since) * MILLIS, (ms(incident.until) + 1000) * MILLIS),
        ProfileFilter(frozenset([incident.cpu])),
    )
    assert body["samples"] == profile.samples
    assert body["weight_us"] == profile.weight_us
    assert shares(body)[incident.function] > 0.5
    assert all(parent < node for node, parent in enumerate(body["parent"]) if node)


def test_thin_frames_are_counted_and_their_time_stays(client, around):
    whole, thin = (client.get(f"/api/flame?{around}&least={least}").json() for least in (0, 0.2))
    assert whole["dropped"] == 0
    assert thin["dropped"] == len(whole["label"]) - len(thin["label"]) > 0
    assert thin["weight"][0] == whole["weight"][0]
    assert all(weight >= 0.2 * thin["weight"][0] for weight in thin["weight"])
    # What is dropped is nobody's own: self times are those of the whole, of each node and of each function.
    own = dict(zip(node_paths(whole), whole["own"], strict=True))
    assert [own[path] for path in node_paths(thin)] == thin["own"]
    assert sum(whole["own"]) == whole["weight_us"] == sum(whole["labels"]["own"])
    labels = label_times(whole)
    assert {name: labels[name] for name in label_times(thin)} == label_times(thin)
    assert sum(thin["labels"]["own"]) > 0.95 * thin["weight_us"] > sum(thin["own"])


def node_paths(body: dict) -> list[tuple[str, ...]]:
    """Each node by the names that lead to it."""
    paths: list[tuple[str, ...]] = []
    for label, parent in zip(body["label"], body["parent"], strict=True):
        names = (body["labels"]["kind"][label], body["labels"]["module"][label], body["labels"]["name"][label])
        paths.append((*paths[parent], *names) if paths else ())
    return paths


def label_times(body: dict) -> dict[tuple[str, str, str], tuple[int, int]]:
    labels = body["labels"]
    names = zip(labels["kind"], labels["module"], labels["name"], strict=True)
    return dict(zip(names, zip(labels["own"], labels["total"], strict=True), strict=True))


@pytest.mark.parametrize("baseline", ["before", "others"])
def test_a_difference_has_the_frames_of_both_sides(client, around, incident, baseline):
    body = client.get(f"/api/flame?{around}&baseline={baseline}&least=0").json()
    assert body["differential"]
    assert body["base_samples"] > 0
    grown = {
        body["labels"]["name"][label]: now / body["weight"][0] - before / body["base_weight"][0]
        for label, now, before in zip(body["label"], body["weight"], body["base_weight"], strict=True)
    }
    assert grown[incident.function] > 0.3
    # Frames that only the baseline has are there, too.
    assert any(now == 0 and before > 0 for now, before in zip(body["weight"], body["base_weight"], strict=True))


def test_a_difference_to_a_window_picked_by_hand(client, around, incident):
    before = ms(incident.since) - 60_000
    body = client.get(f"/api/flame?{around}&baseline=window&base_since={before}&base_until={before + 20_000}").json()
    assert (body["base_since"], body["base_until"]) == (before, before + 20_000)
    # Without cores there are no others.
    assert client.get("/api/flame?baseline=others").json()["base_samples"] == 0


def test_filters_act_on_everything(client, recording, incident):
    window = f"since={ms(incident.since)}&until={ms(incident.until)}"
    for query in (f"comm={incident.comm}", f"stack=^{incident.function}$", "kind=kernel", "kind=user"):
        flame = client.get(f"/api/flame?{window}&{query}").json()
        ran = client.get(f"/api/processes?{window}&{query}").json()
        _, offsets = counts(client.get(f"/api/subsecond?{window}&{query}"))
        header, values, _ = heat(client.get(f"/api/cores?{window}&{query}&cells=5"))
        assert 0 < flame["samples"] == int(offsets.sum())
        assert ran["total_seconds"] == pytest.approx(flame["weight_us"] / 1e6, abs=0.01)
        assert header["measure"] == "matching"
        assert values[values != header["unrecorded"]].max() > 0
    assert client.get(f"/api/flame?{window}&comm=no-such-process").json()["samples"] == 0


def test_filters_at_a_zoom_below_a_second(client, incident):
    window = f"since={ms(incident.since) + 1000}&until={ms(incident.since) + 1500}&cpus={incident.cpu}"
    _, values, _ = heat(client.get(f"/api/cores?{window}&comm={incident.comm}&cells=10"))
    assert values.max() > 400


def test_when_a_frame_ran(client, incident):
    since, until = ms(incident.since) - 20_000, ms(incident.until) + 20_000
    query = f"since={since}&until={until}&cells=20&name={incident.function}&kind_of_frame=kernel"
    body = client.get(f"/api/flame?since={since}&until={until}").json()
    labels = body["labels"]
    place = labels["name"].index(incident.function)
    header, values, _ = heat(client.get(f"/api/frame-times?{query}&module={labels['module'][place]}"))
    core, cell = np.unravel_index(np.argmax(np.where(values == 255, 0, values)), values.shape)
    assert header["cpus"][core] == incident.cpu
    at = since + cell * (until - since) // 20
    assert ms(incident.since) - 4000 <= at <= ms(incident.until)


def test_sub_second_offsets_are_where_the_samples_are(client, recording, incident):
    since = ms(incident.since) // 1000 * 1000
    header, found = counts(client.get(f"/api/subsecond?since={since}&until={since + 4000}&rows=20"))
    assert (header["columns"], header["rows"]) == (4, 20)
    rows = recording.read("samples", Window(since * MILLIS, (since + 4000) * MILLIS), ["wall"])
    offsets = (rows.column("wall").to_numpy() - since * MILLIS) // (50 * MILLIS)
    assert (np.bincount(offsets, minlength=80).reshape(4, 20) == found).all()
    # A time that begins within a second is drawn on the same seconds.
    part = f"since={since + 1330}&until={since + 3510}&rows=20"
    header, later = counts(client.get(f"/api/subsecond?{part}"))
    assert [header[name] for name in ("since", "from", "until", "columns")] == [
        *(since + 1000, since + 1330, since + 3510),
        3,
    ]
    assert (later[1] == found[2]).all()
    assert later[0, :6].sum() == later[2, 11:].sum() == 0
    assert (later[0, 7:] == found[1, 7:]).all()


def test_sub_second_offsets_have_the_part_of_the_kernel(client, incident):
    window = f"since={ms(incident.since)}&until={ms(incident.since) + 4000}&rows=20"
    _, (found, kernel) = kernel_counts(client.get(f"/api/subsecond?{window}"))
    _, alone = counts(client.get(f"/api/subsecond?{window}&kind=kernel"))
    assert (kernel == alone).all()
    assert 0 < kernel.sum() < found.sum()
    # The incident holds its core in the kernel.
    _, (found, kernel) = kernel_counts(client.get(f"/api/subsecond?{window}&cpus={incident.cpu}"))
    assert 2 * kernel.sum() > found.sum()


def test_who_ran_with_their_cores(client, around, incident):
    body = client.get(f"/api/processes?{around}").json()
    first = body["processes"][0]
    assert first["comm"] == incident.comm
    assert first["pid"] is not None
    assert first["per_cpu"][0][0] == incident.cpu
    assert sum(each["share"] for each in body["processes"]) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("by", ["process", "program", "container", "pod"])
def test_cpu_time_is_whole_however_it_is_grouped(client, recording, incident, by):
    window = Window(ms(incident.since) * MILLIS, ms(incident.until) * MILLIS)
    body = client.get(f"/api/processes?{window_query(window)}&by={by}&limit=10000").json()
    rows = body["processes"]
    flame = client.get(f"/api/flame?{window_query(window)}&least=0").json()
    kernel = client.get(f"/api/flame?{window_query(window)}&kind=kernel").json()
    assert body["by"] == by and body["left_out"] == 0
    assert sum(row["seconds"] for row in rows) == pytest.approx(flame["weight_us"] / 1e6, abs=0.5)
    assert sum(row["kernel_seconds"] for row in rows) == pytest.approx(kernel["weight_us"] / 1e6, abs=0.5)
    assert [row["seconds"] for row in rows] == sorted((row["seconds"] for row in rows), reverse=True)
    part_s = body["seconds"] / len(rows[0]["over_time"])
    for row in rows:
        assert 0 <= row["kernel_seconds"] <= row["seconds"]
        assert sum(seconds for _, seconds in row["per_cpu"]) == pytest.approx(row["seconds"], abs=0.1)
        assert sum(row["over_time"]) / 1000 * part_s == pytest.approx(row["seconds"], abs=0.05 * len(row["over_time"]))
    before = client.get(f"/api/flame?since={ms(window.since) - 60_000}&until={ms(window.since)}").json()
    assert body["before_seconds"] == 60
    # What ran only before has no row.
    assert 0 < sum(row["before_seconds"] for row in rows) <= before["weight_us"] / 1e6 + 0.5
    if by != "process":
        assert len({(row["comm"], row["container"], row["pod"]) for row in rows}) == len(rows)


def window_query(window: Window) -> str:
    return f"since={ms(window.since)}&until={ms(window.until)}"


@pytest.mark.parametrize("cpus", ["", "1,3-5"])
@pytest.mark.parametrize("part", [(0, 1), (0.1, 0.9), (0.4, 0.45)])
def test_interrupts_match_the_rows_of_the_store(client, recording, part, cpus):
    span = recording.span()
    since, until = (ms(span.since + int(share * span.nanos)) * MILLIS for share in part)
    window = Window(since, until)
    rows = recording.read("interrupts", window, cpus={1, 3, 4, 5} if cpus else None).to_pylist()
    body = client.get(f"/api/interrupts?{window_query(window)}&limit=1000&cpus={cpus}").json()
    by_core, reads = Counter(), Counter()
    for row in rows:
        by_core[row["irq"], row["name"], row["cpu"]] += row["count"]
        reads[row["irq"], row["name"], ms(row["wall"])] += row["count"]
    lines = body["lines"]
    assert {(line["irq"], line["name"], cpu): n for line in lines for cpu, n in line["per_cpu"]} == by_core
    assert body["total"] == by_core.total() == sum(line["count"] for line in lines) > 0
    assert [line["count"] for line in lines] == sorted((line["count"] for line in lines), reverse=True)
    for line in lines:
        name = line["irq"], line["name"]
        greatest = max(many for read, many in reads.items() if read[:2] == name)
        assert line["worst"] == greatest == reads[(*name, line["worst_at"])]
        assert line["per_second"] == pytest.approx(line["count"] / window.seconds, rel=0.01)


def test_interrupts_that_the_limit_leaves_out_are_counted(client):
    every = client.get("/api/interrupts?limit=1000").json()
    first = client.get("/api/interrupts?limit=1").json()
    assert first["lines"] == every["lines"][:1]
    assert first["left_out"] == len(every["lines"]) - 1 > 0
    assert first["total"] == every["total"]
    assert client.get("/api/interrupts?since=5&until=5").json() == {"lines": [], "total": 0, "left_out": 0}
    assert client.get("/api/interrupts?cpus=9-3").status_code == 422


def test_an_interrupt_line_that_moved_to_another_core(tmp_path):
    scene = Scene(cores=4, seconds=20)
    nic = {"irq": "24", "name": "eth0-TxRx-0", "device": "eth0", "queue": 0}
    scene.row("interrupts", 3, **nic, cpu=1, count=100, affinity="1")
    scene.row("interrupts", 9, **nic, cpu=2, count=30, affinity="2")
    scene.row("interrupts", 9, **nic, cpu=1, count=80, affinity="2")
    scene.row("interrupts", 5, irq="LOC", name="Local timer interrupts", cpu=0, count=9000)
    scene.write(tmp_path / "r")
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as client:
        timer, moved = client.get("/api/interrupts").json()["lines"]
    assert (timer["irq"], timer["device"], timer["queue"], timer["affinity"]) == ("LOC", None, None, None)
    # The greatest read is the sum over the cores, and the affinity is the last one.
    assert (moved["count"], moved["worst"], moved["affinity"]) == (210, 110, "2")
    assert moved["per_cpu"] == [[1, 180], [2, 30]]


def test_a_diagnosis_with_times_to_jump_to(client, incident):
    body = client.get(f"/api/diagnosis?at={ms(incident.since)}").json()
    finding = body["findings"][0]
    assert finding["cause"] == "zombie-memcgs"
    roles = [link["role"] for link in finding["chain"]]
    assert {"symptom", "mechanism", "root_cause"} <= set(roles)
    assert finding["culprit"]["comm"] == incident.comm
    assert finding["culprit"]["cpu"] == incident.cpu
    evidence = [each for link in finding["chain"] for each in link["evidence"]]
    assert all(each["since_ms"] <= each["until_ms"] for each in evidence)
    assert client.get("/api/diagnosis?since=5&until=6").status_code == 404


def test_an_incident_has_the_same_diagnosis_in_every_answer(client, recording):
    marked = client.get("/api/incidents").json()["incidents"][0]
    tracker = client.app.state.api.trackers["this"]

    def tracked():
        return client.portal.call(tracker.incident, marked["id"])

    _, moment = tracked()
    worked_out = client.get(f"/api/diagnosis?incident={marked['id']}").json()
    assert worked_out["window"]["since_ms"] == ms(Window(moment.since, moment.until).clamp(recording.span()).since)
    until = time.monotonic() + 60
    while tracked()[0]["state"] == "waiting" and time.monotonic() < until:
        time.sleep(0.1)
    # From here on it is answered as it was found in the background.
    assert tracker.diagnosis(tracked()[0]) is not None
    kept = client.get(f"/api/diagnosis?incident={marked['id']}").json()
    assert kept["findings"] == worked_out["findings"]
    again = next(each for each in client.get("/api/incidents").json()["incidents"] if each["id"] == marked["id"])
    assert (again["cause"], again["confidence"]) == (kept["findings"][0]["cause"], kept["findings"][0]["confidence"])
    assert client.get("/api/diagnosis?incident=unknown").status_code == 404


def test_exports_for_people_and_other_tools(client, around, incident):
    folded = client.get(f"/api/export/folded?{around}")
    assert folded.headers["content-disposition"].endswith('.folded.txt"')
    total = sum(int(line.rpartition(" ")[2]) for line in folded.text.splitlines())
    assert total == client.get(f"/api/flame?{around}").json()["weight_us"]
    speedscope = client.get(f"/api/export/speedscope?{around}").json()
    assert sum(speedscope["profiles"][0]["weights"]) == total
    frames = speedscope["shared"]["frames"]
    assert incident.function in {frame["name"] for frame in frames}
    assert all(index < len(frames) for stack in speedscope["profiles"][0]["samples"] for index in stack)
    assert gzip.decompress(client.get(f"/api/export/pprof?{around}").content)
    assert client.get(f"/api/export/svg?{around}").text.startswith("<")
    assert incident.function in client.get(f"/api/export/html?{around}").text
    assert client.get("/api/export/exe").status_code == 422


def test_exports_are_what_is_seen(client, around, incident):
    def folded(query: str) -> dict[str, int]:
        text = client.get(f"/api/export/folded?{around}&{query}").text
        return {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in text.splitlines()}

    whole = folded("")
    zoomed = folded(f"root={incident.comm}")
    assert zoomed == {stack: weight for stack, weight in whole.items() if stack.split(";")[0] == incident.comm}
    assert 0 < len(zoomed) < len(whole)
    without = folded(f"hide={incident.function}")
    assert incident.function not in str(without)
    assert without.items() <= whole.items()
    assert sum(whole.values()) - sum(without.values()) == sum(
        weight for stack, weight in whole.items() if incident.function in stack.split(";")
    )
    assert folded("root=unknown&hide=nothing") == whole
    changed = client.get(f"/api/export/svg?{around}&baseline=before&root={incident.comm}&hide={incident.function}")
    assert changed.status_code == 200
    assert incident.function not in changed.text


def test_the_other_cores_are_those_that_there_are(tmp_path):
    """Cores whose numbers neither begin at 0 nor follow each other, as where some are offline."""
    scene = Scene(cores=3, seconds=4)
    for cpu, share in ((2, 0.5), (7, 0.25), (130, 1.0)):
        scene.stack(cpu, 0, 4, share, f"on-{cpu}", cpu, ["entry", "work"])
    scene.write(tmp_path / "r")
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as client:
        body = client.get("/api/flame?cpus=7&baseline=others").json()
        own = client.get("/api/flame?cpus=7").json()["samples"]
        others = client.get("/api/flame?cpus=2,130").json()["samples"]
    assert (body["samples"], body["base_samples"]) == (own, others)
    assert others > 4 * own


def test_an_unreadable_file_is_reported(tmp_path):
    recording = Scene(cores=1, seconds=3).stack(0, 0, 3, 1.0, "busy", 9, ["entry"]).write(tmp_path / "r")
    damaged = recording.segments[0].file("samples")
    damaged.write_bytes(damaged.read_bytes()[:-100])
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as client:
        assert "damaged" in client.get("/api/flame").json()["blind_spots"][0]
        assert client.get("/api/recording").json()["skipped"] == [
            f"{damaged.relative_to(tmp_path / 'r')}: truncated or damaged"
        ]


def test_a_logged_line_that_was_marked_as_an_incident_is_listed_once(tmp_path):
    scene = Scene(cores=1, seconds=20)
    scene.event(5, "nic-reset", "eth0: reset", device="eth0")
    scene.event(5, "incident", "kernel-log: eth0: reset", source="recorder", trigger="nic-reset", device="eth0")
    scene.event(6, "nic-reset", "eth0: reset", device="eth0")
    scene.event(9, "incident", "core 0 has spent 3 s in the kernel", source="recorder", trigger="core", cpu=0)
    scene.write(tmp_path / "r")
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as client:
        body = client.get("/api/events").json()
    assert [(each["kind"], each["marked"]) for each in body["events"]] == [
        ("nic-reset", True),
        ("nic-reset", False),
        ("incident", False),
    ]
    assert body["kinds"] == [{"kind": "incident", "count": 1}, {"kind": "nic-reset", "count": 2}]
