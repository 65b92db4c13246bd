"""The one-second loop: every source once a tick, each failure and each missed second a row."""

import inspect
import itertools
import re
import time

import numpy as np
import pytest
from tests.collect.fake_recorder import WALL, FakeRecorder, FakeSampler, FakeSource, KeepingSink

from exhume.collect import budget
from exhume.collect.budget import AVERAGED_TICKS, SETTLING_TICKS
from exhume.collect.loop import MEMORY_TICKS, RETRY_TICKS, RecorderOptions
from exhume.collect.source_set import Sources
from exhume.collect.sources.cgroups import MOST_EVENTS, CgroupFollower
from exhume.model.clock import MILLIS, NANOS, Tick
from exhume.model.errors import UsageError
from exhume.model.tables import CgroupEvents, Losses, to_columns
from exhume.model.times import parse_duration


def anchors(tick: Tick) -> dict[str, dict[str, list[int]]]:
    return {"anchors": {"time": [tick.start], "wall": [tick.wall]}}


def samples(count: int):
    def rows(tick: Tick):
        return {
            "samples": {"time_ms": [tick.start // MILLIS] * count, "pid": [7] * count},
            "sampling": {"time": [tick.start], "cpu": [0], "busy": [count], "idle": [0], "lost": [2]},
        }

    return rows


def test_ticks_end_on_full_seconds_of_the_wall_clock_and_leave_no_gap() -> None:
    made = FakeRecorder(FakeSource("anchors", anchors))
    made.clock.pass_ns(300 * MILLIS)
    made.run(4)
    rows = made.sink.rows("anchors")
    assert [row["wall"] % NANOS for row in rows] == [0, 0, 0, 0]
    assert made.stop.waits == [0.7, 1, 1, 1]
    ticks = [tick for tick, _ in made.sink.ticks]
    assert [tick.index for tick in ticks] == [0, 1, 2, 3]
    assert [after.start - before.end for before, after in itertools.pairwise(ticks)] == [0, 0, 0]


def test_the_first_tick_is_never_next_to_nothing() -> None:
    made = FakeRecorder(FakeSource("anchors", anchors))
    made.clock.pass_ns(995 * MILLIS)
    made.run(2)
    assert made.stop.waits == [pytest.approx(1.005), 1]
    assert made.sink.rows("losses") == []


def test_a_turn_that_takes_nearly_a_second_is_no_reason_to_skip_one() -> None:
    made = FakeRecorder()

    def slow(tick: Tick):
        made.clock.pass_ns(900 * MILLIS)
        return {}

    made.sources.others.append(FakeSource("slow", slow))
    made.run(4)
    assert [tick.nanos for tick, _ in made.sink.ticks[1:]] == [NANOS] * 3


def test_sources_are_read_in_order_and_primed_first() -> None:
    order = []

    def noting(name: str):
        return FakeSource(name, lambda tick: order.append((tick.index, name)) or {})

    sampler = FakeSampler(rows=lambda tick: order.append((tick.index, "stacks")) or {})
    made = FakeRecorder(noting("cpu"), noting("node"), sampler=sampler)
    made.run(1)
    assert order == [(-1, "stacks"), (-1, "cpu"), (-1, "node"), (0, "stacks"), (0, "cpu"), (0, "node")]
    assert made.sink.ticks[0][0].index == 0, "what the first look gave is not recorded"


def test_who_traces_cgroups_comes_right_after_the_sampler_and_before_their_counts() -> None:
    sampler, traced, counts, cpu = (FakeSource(name) for name in ("stacks", "cgroup-trace", "cgroups", "cpu"))
    sources = Sources(sampler=sampler, cgroups=counts, traced=traced, others=[cpu])
    assert sources.in_order() == [sampler, traced, counts, cpu]
    sources.traced = sampler
    assert sources.in_order() == [sampler, counts, cpu]
    sources.close()
    assert sampler.closed and counts.closed and cpu.closed


def test_a_source_that_fails_is_left_alone_recorded_as_a_loss_and_comes_back() -> None:
    def fails_once(tick: Tick):
        if tick.index == 2:
            raise FileNotFoundError(2, "No such file", "/proc/net/softnet_stat")
        return anchors(tick)

    broken = FakeSource("softnet", fails_once)
    steady = FakeSource("steady")
    made = FakeRecorder(broken, steady)
    summary = made.run(2 + RETRY_TICKS + 3)
    (loss,) = made.sink.rows("losses")
    assert (loss["tick"], loss["source"], loss["kind"], loss["count"]) == (2, "softnet", "source-failed", 1)
    assert "FileNotFoundError" in loss["text"] and "/proc/net/softnet_stat" in loss["text"]
    assert broken.ticks == [-1, 0, 1, 2, *range(2 + RETRY_TICKS, 2 + RETRY_TICKS + 3)]
    assert steady.ticks == list(range(-1, 2 + RETRY_TICKS + 3))
    assert summary.losses == {"source-failed": 1}


def test_a_failed_source_has_its_place_in_the_loss_and_its_traceback_in_the_log(caplog) -> None:
    def fails(tick: Tick):
        return parse_duration("soon") if tick.index == 2 else anchors(tick)

    made = FakeRecorder(FakeSource("softnet", fails))
    made.run(4)
    (loss,) = made.sink.rows("losses")
    line = inspect.getsourcelines(parse_duration)[1]
    file, _, number = re.search(r" at (\S+)\)$", loss["text"])[1].partition(":")
    assert file == "model/times.py"
    assert line < int(number) < line + 30
    (record,) = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "exhume.collect.loop")
    assert record.exc_info[0] is UsageError
    assert "parse_duration" in caplog.text


def test_an_observer_gets_the_committed_rows_and_its_failure_is_a_loss() -> None:
    class Observer:
        name = "metrics"

        def __init__(self, fails_at: int) -> None:
            self.fails_at, self.seen = fails_at, []

        def observe(self, tick, rows, losses) -> None:
            self.seen.append((tick.index, len(rows["anchors"]), len(made.sink.ticks)))
            if tick.index == self.fails_at:
                raise ConnectionError("no listener")

    failing, steady = Observer(1), Observer(-1)
    steady.name = "steady"
    made = FakeRecorder(FakeSource("anchors", anchors), observers=[failing, steady])
    made.run(2 + RETRY_TICKS)
    assert steady.seen == [(index, 1, index + 1) for index in range(2 + RETRY_TICKS)]
    assert [index for index, *_ in failing.seen] == [0, 1, 1 + RETRY_TICKS]
    (loss,) = made.sink.rows("losses")
    assert (loss["tick"], loss["source"], loss["kind"]) == (2, "metrics", "observer-failed")


def test_a_source_that_keeps_failing_is_recorded_each_time() -> None:
    def fails(tick: Tick):
        raise ValueError("nonsense")

    made = FakeRecorder(FakeSource("node", fails))
    made.run(2 * RETRY_TICKS)
    assert [loss["tick"] for loss in made.sink.rows("losses")] == [0, RETRY_TICKS - 1, 2 * RETRY_TICKS - 1]


def test_a_late_tick_is_a_loss() -> None:
    made = FakeRecorder()
    summary = made.run(6, delays={1: 0.4, 3: 29.0})
    (loss,) = made.sink.rows("losses")
    assert (loss["tick"], loss["source"], loss["kind"], loss["count"]) == (3, "recorder", "late-tick", 29)
    assert loss["time"] == made.sink.ticks[3][0].start
    assert summary.losses == {"late-tick": 29}
    assert [tick.nanos for tick, _ in made.sink.ticks] == [NANOS, 1.4 * NANOS, 0.6 * NANOS, 30 * NANOS, NANOS, NANOS]


@pytest.mark.parametrize("step", [3600.25, -3600.25])
def test_a_wall_clock_that_is_set_moves_no_row_and_misses_no_second(step) -> None:
    made = FakeRecorder()

    def sets(tick: Tick):
        if tick.index == 2:
            made.clock.wall += round(step * NANOS)
        return anchors(tick)

    made.sources.others.append(FakeSource("anchors", sets))
    summary = made.run(6)
    times = [row["time"] for row in made.sink.rows("anchors")]
    assert all(200 * MILLIS <= after - before <= 1200 * MILLIS for before, after in itertools.pairwise(times))
    assert made.sink.rows("losses") == []
    assert summary.until - summary.since == made.clock.monotonic - 500 * NANOS


@pytest.mark.parametrize("held_up", [1, 4])
def test_who_is_held_up_between_two_clocks_reads_them_again(held_up: int) -> None:
    made = FakeRecorder()
    true, left, wall_ns = made.clock.wall - made.clock.monotonic, [held_up], made.clock.wall_ns

    def slowly() -> int:
        """Others have the core between the reading of one clock and of the other."""
        if (len(made.stop.waits), len(made.sink.ticks)) == (3, 2) and left[0]:
            left[0] -= 1
            made.clock.pass_ns(14 * NANOS)
        return wall_ns()

    made.clock.wall_ns = slowly
    made.run(4)
    assert left == [0]
    assert {tick.wall - tick.end for tick, _ in made.sink.ticks} == {true}


def test_it_ends_when_the_time_is_over() -> None:
    made = FakeRecorder()
    made.run(100, until=made.clock.monotonic + 5 * NANOS)
    assert len(made.sink.ticks) == 5


def test_rows_present_at_a_stop_are_recorded() -> None:
    made = FakeRecorder(FakeSource("anchors", anchors))
    made.run(1)
    assert len(made.sink.rows("anchors")) == 1


def test_what_comes_while_the_last_turn_is_taken_is_recorded_too() -> None:
    made = FakeRecorder(FakeSource("anchors", anchors))

    def starved(tick: Tick):
        if tick.index == 1:
            made.stop.now()
            made.clock.pass_ns(20 * NANOS)
        return {}

    made.sources.others.append(FakeSource("starved", starved))
    made.run(10)
    assert len(made.sink.rows("anchors")) == 3
    assert made.sink.ticks[-1][0].end == made.clock.monotonic


def test_it_accounts_for_itself() -> None:
    made = FakeRecorder(sampler=FakeSampler(rows=samples(11)))
    summary = made.run(3)
    rows = made.sink.rows("self")
    assert [row["samples"] for row in rows] == [11, 11, 11]
    assert [row["written_bytes"] for row in rows] == [0, 1000, 1000]
    assert all(row["span_ms"] == 1000 and row["rate_hz"] == 97 and row["ring_fill"] == 3 for row in rows)
    assert all(row["rss_kb"] > 1000 and 0 <= row["tick_us"] < 2**32 for row in rows)
    assert (summary.samples, summary.rate_hz, summary.written_bytes) == (33, 97, 2000)
    assert summary.peak_rss_bytes >= max(row["rss_kb"] for row in rows) * 1024
    assert (summary.since, summary.until) == (WALL, WALL + 3 * NANOS)


def test_it_accounts_for_each_source() -> None:
    def busy(tick: Tick):
        until = time.thread_time_ns() + 2_000_000
        while time.thread_time_ns() < until:
            pass
        return {}

    made = FakeRecorder(FakeSource("busy", busy), FakeSource("idle"), sampler=FakeSampler())
    made.run(25)
    rows = made.sink.rows("source_cost")
    # Whole decades alone: what the last five ticks took is lost with them.
    assert sorted({(row["tick"], row["time"], row["span_ms"]) for row in rows}) == [
        (9, made.sink.ticks[0][0].start, 10_000),
        (19, made.sink.ticks[10][0].start, 10_000),
    ]
    spent = {name: [row["cpu_us"] for row in rows if row["source"] == name] for name in {row["source"] for row in rows}}
    assert spent.keys() >= {"busy", "idle", "stacks", "loop", "store", "background", "children", "symbols"}
    assert all(20_000 <= each < 60_000 for each in spent["busy"])
    assert all(each < 10_000 for each in spent["idle"] + spent["stacks"])


def test_the_peak_of_memory_counts_what_is_held_within_a_tick() -> None:
    held = 64 << 20

    def holds(tick: Tick):
        assert len(b"x" * held) == held
        return {}

    made = FakeRecorder(sampler=FakeSampler(rows=holds))
    summary = made.run(2)
    least = min(row["rss_kb"] for row in made.sink.rows("self")) * 1024
    assert summary.peak_rss_bytes >= least + held * 9 // 10


def test_a_sampler_that_is_left_alone_has_no_samples() -> None:
    def fails_in_the_second(tick: Tick):
        if tick.index == 1:
            raise OSError(5, "broken")
        return samples(4)(tick)

    made = FakeRecorder(sampler=FakeSampler(rows=fails_in_the_second))
    summary = made.run(4)
    assert [row["samples"] for row in made.sink.rows("self")] == [4, 0, 0, 0]
    assert summary.samples == 4


def test_each_tick_is_reported_as_it_happens() -> None:
    reported = []
    cpu = {"cpu": {"time": np.array([1]), "cpu": np.array([0], np.uint16)}}
    for column in ("system", "irq", "softirq", "steal"):
        cpu["cpu"][column] = np.array([0], np.uint16)
    made = FakeRecorder(FakeSource("cpu", lambda tick: cpu), sampler=FakeSampler(rows=samples(5)))
    made.run(2, delays={1: 4.0}, on_tick=reported.append)
    assert [summary.samples for summary in reported] == [5, 5]
    assert [summary.lost for summary in reported] == [2, 2]
    assert reported[0].cpu is cpu["cpu"]
    assert reported[0].losses == []
    assert reported[1].loss_counts == {"late-tick": 4}
    assert "5.0 s instead of one" in reported[1].losses[0]


def test_losses_of_sources_are_summed() -> None:
    lost = Losses(1, "kernel-log", "log-gap", 3, "gap")
    made = FakeRecorder(FakeSource("kernel-log", losses=lambda tick: [lost] if tick.index in (0, 2) else []))
    summary = made.run(3)
    assert summary.losses == {"log-gap": 6}
    assert [loss["tick"] for loss in made.sink.rows("losses")] == [0, 2]
    assert all(loss["cpu"] is None for loss in made.sink.rows("losses"))


def test_a_full_disk_is_reported_to_the_observer() -> None:
    reported = []
    made = FakeRecorder(FakeSource("anchors", anchors))
    made.sink.commit = lambda tick: setattr(made.sink, "dropped", made.sink.dropped + 4) or False
    summary = made.run(2, on_tick=reported.append)
    assert [each.loss_counts for each in reported] == [{"disk-full": 4}, {"disk-full": 4}]
    assert summary.losses == {"disk-full": 8}


def test_a_new_segment_has_to_stand_alone() -> None:
    sampler = FakeSampler()
    made = FakeRecorder(sampler=sampler)
    made.sink = KeepingSink(cuts=frozenset((1, 2)))
    made.run(5)
    assert sampler.segments == 2


class TestBudget:
    """The rate follows the cost, and every change of it is a row."""

    def spends(self, monkeypatch, share: float):
        """The process uses this share of a core, by the tick."""
        used = [0.0]

        def usage(_: int):
            used[0] += share
            return type("Usage", (), {"ru_utime": used[0], "ru_stime": 0.0})()

        monkeypatch.setattr(budget.resource, "getrusage", usage)

    def test_a_change_of_rate_is_a_loss(self, monkeypatch) -> None:
        self.spends(monkeypatch, 0.2)
        sampler = FakeSampler()
        made = FakeRecorder(sampler=sampler)
        summary = made.run(SETTLING_TICKS + AVERAGED_TICKS)
        (loss,) = made.sink.rows("losses")
        assert (loss["source"], loss["kind"], loss["count"]) == ("stacks", "rate-lowered", 48)
        assert "20.0% of one core, over its budget of 8.0%" in loss["text"]
        assert sampler.rates == [48]
        assert summary.rate_hz == 48

    def test_the_rate_comes_back(self, monkeypatch) -> None:
        sampler = FakeSampler()
        made = FakeRecorder(sampler=sampler)
        self.spends(monkeypatch, 0.2)
        made.run(SETTLING_TICKS + AVERAGED_TICKS)
        self.spends(monkeypatch, 0.01)
        made.run(2 * AVERAGED_TICKS)
        assert [loss["kind"] for loss in made.sink.rows("losses")] == ["rate-lowered", "rate-raised", "rate-raised"]
        assert sampler.rates == [48, 96, 97]

    def test_a_rate_that_the_kernel_refuses_does_not_end_the_recording(self, monkeypatch) -> None:
        self.spends(monkeypatch, 0.2)
        sampler = FakeSampler()
        sampler.refuses = OSError(22, "Invalid argument")
        made = FakeRecorder(sampler=sampler)
        made.run(SETTLING_TICKS + AVERAGED_TICKS + 3)
        (loss,) = made.sink.rows("losses")
        assert (loss["kind"], loss["count"]) == ("rate-refused", 48)
        assert made.sink.rows("self")[-1]["rate_hz"] == 97

    def test_too_much_memory_makes_the_sampler_forget(self) -> None:
        sampler = FakeSampler()
        made = FakeRecorder(sampler=sampler, options=RecorderOptions(memory_budget=1))
        made.run(2 * MEMORY_TICKS)
        assert sampler.released == 2
        assert [loss["kind"] for loss in made.sink.rows("losses")] == ["memory-released"] * 2


class FollowedMemory:
    """The part of the memory hierarchy that the follower knows."""

    hierarchy_id = 4

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def follow(self, op: str, path: str) -> None:
        self.calls.append((op, path))

    def lost_track(self) -> None:
        self.calls.append(("lost",))

    def follow_from_now(self) -> None:
        self.calls.append(("from-now",))


def followed(made: FakeRecorder) -> FollowedMemory:
    memory = FollowedMemory()
    made.sources.follower = CgroupFollower(memory)
    assert memory.calls == [("from-now",)]
    memory.calls.clear()
    return memory


def cgroup_events(*events: tuple[int, str, str]):
    hierarchies, ops, paths = zip(*events, strict=True)
    return {"cgroup_events": {"time": [1] * len(events), "hierarchy": hierarchies, "op": ops, "path": paths}}


@pytest.mark.parametrize("own_source", [False, True])
def test_traced_cgroups_keep_the_counts_current(own_source) -> None:
    events = cgroup_events((4, "mkdir", "/a"), (9, "mkdir", "/other"), (4, "rmdir", "/a"))
    sampler = FakeSampler(rows=lambda tick: {} if own_source else events)
    made = FakeRecorder(sampler=sampler)
    memory = followed(made)
    if own_source:
        made.sources.traced = FakeSource("cgroup-trace", lambda tick: events)
    made.run(1)
    assert memory.calls == [("mkdir", "/a"), ("rmdir", "/a")]


def test_cgroups_beyond_their_share_are_followed_and_counted() -> None:
    rows = [CgroupEvents(1, 4, "mkdir", number, 2, f"/a/{number}", 7, "sh") for number in range(MOST_EVENTS + 1)]
    made = FakeRecorder(sampler=FakeSampler(rows=lambda tick: {"cgroup_events": to_columns("cgroup_events", rows)}))
    memory = followed(made)
    made.run(1)
    assert len(memory.calls) == len(rows)
    (loss,) = made.sink.rows("losses")
    assert loss["kind"] == "lost-cgroup-events"
    assert 0 < len(made.sink.rows("cgroup_events")) == len(rows) - loss["count"] <= MOST_EVENTS


@pytest.mark.parametrize("kind", ["lost-task-records", "damaged-task-bytes", "lost-cgroup-events"])
def test_lost_records_lose_track_of_cgroups(kind) -> None:
    sampler = FakeSampler()
    sampler.losses = lambda tick: [Losses(1, "stacks", kind, 3, "full")] if tick.index == 1 else []
    made = FakeRecorder(sampler=sampler)
    memory = followed(made)
    made.run(3)
    assert memory.calls == [("lost",), ("from-now",)]


def test_a_sampler_that_fails_loses_track_of_cgroups() -> None:
    def fails(tick: Tick):
        if tick.index == 1:
            raise OSError(5, "broken")
        return {}

    made = FakeRecorder(sampler=FakeSampler(rows=fails))
    memory = followed(made)
    made.run(3)
    assert memory.calls == [("lost",), ("from-now",)]
