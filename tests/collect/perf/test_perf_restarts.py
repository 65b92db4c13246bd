"""What is started again and again is reported, where it fails; what only repeats is not."""

from collections.abc import Mapping

import pytest
from tests.collect.perf.record_builder import comm, exits, fork

from exhume.collect.perf.records import walk
from exhume.collect.perf.restarts import LEAST_LIVES, MOST_ALIKE, REPORT_EVERY_NS, Restarts
from exhume.model.clock import NANOS
from exhume.model.tables import Events

SUPERVISOR = 50
NAMES = {SUPERVISOR: "supervisord"}


def life(pid: int, born: int, ended: int, name: str = "svc", parent: int = SUPERVISOR) -> bytes:
    return fork(pid, parent, born) + comm(pid, name, born + 1, execs=True) + exits(pid, ended, parent=parent)


def reported(restarts: Restarts, records: bytes, now: int, failed: Mapping[int, int] | None) -> list[Events]:
    return restarts.observe(now, walk(records), failed, NAMES.get).events


def lives(count: int, pace: int = NANOS, length: int = NANOS // 4) -> bytes:
    return b"".join(life(100 + n, n * pace, n * pace + length) for n in range(count))


def test_a_program_that_fails_again_and_again_is_reported_once_with_its_parent() -> None:
    restarts = Restarts()
    failed = dict.fromkeys(range(100, 104), 1 << 8)
    (event,) = reported(restarts, lives(4), 4 * NANOS, failed)
    assert (event.kind, event.severity, event.comm, event.pid, event.value) == ("restart", "warning", "svc", 103, 4.0)
    assert "with code 1" in event.text
    assert "supervisord (50)" in event.text
    assert reported(restarts, b"", 5 * NANOS, {}) == []


def test_it_is_reported_again_after_a_while_with_the_lives_since() -> None:
    restarts = Restarts()
    pids = dict.fromkeys(range(100, 200), 9)
    assert len(reported(restarts, lives(3), 3 * NANOS, pids)) == 1
    second = life(110, 4 * NANOS, 5 * NANOS) + life(111, 6 * NANOS, 7 * NANOS)
    assert reported(restarts, second, 3 * NANOS + REPORT_EVERY_NS - 1, pids) == []
    (event,) = reported(restarts, life(112, 8 * NANOS, 9 * NANOS), 9 * NANOS, pids)
    assert event.value == 3.0
    assert "by signal 9" in event.text


def test_one_that_ends_well_is_not_reported() -> None:
    assert reported(Restarts(), lives(8), 9 * NANOS, {}) == []


def test_one_good_end_among_failures_is_no_loop_yet() -> None:
    failed = dict.fromkeys((100, 101, 103), 256)
    assert reported(Restarts(), lives(4), 9 * NANOS, failed) == []


def test_without_exit_codes_it_is_reported_as_worth_knowing() -> None:
    (event,) = reported(Restarts(), lives(LEAST_LIVES), 9 * NANOS, None)
    assert event.severity == "info"
    assert "code" not in event.text


def test_too_few_lives_are_no_loop() -> None:
    assert reported(Restarts(), lives(LEAST_LIVES - 1), 9 * NANOS, None) == []


def test_a_command_that_a_script_calls_many_times_is_no_loop() -> None:
    failed = dict.fromkeys(range(100, 110), 256)
    assert reported(Restarts(), lives(8, pace=NANOS // 100, length=NANOS // 1000), NANOS, failed) == []


def test_a_failure_within_a_moment_may_be_an_answer() -> None:
    failed = dict.fromkeys(range(100, 110), 256)
    (event,) = reported(Restarts(), lives(8, length=NANOS // 200), 9 * NANOS, failed)
    assert event.severity == "info"
    assert "with code 1" in event.text


def test_several_at_once_are_workers_and_no_loop() -> None:
    overlapping = lives(6, pace=NANOS, length=3 * NANOS)
    assert reported(Restarts(), overlapping, 20 * NANOS, None) == []


def test_long_lives_and_long_pauses_are_no_loop() -> None:
    assert reported(Restarts(), lives(4, pace=200 * NANOS, length=100 * NANOS), 900 * NANOS, None) == []
    assert reported(Restarts(), lives(4, pace=100 * NANOS, length=NANOS), 900 * NANOS, None) == []


def test_a_life_may_begin_in_one_tick_and_end_in_another() -> None:
    restarts = Restarts()
    for n in range(LEAST_LIVES):
        born = n * 2 * NANOS
        begin = fork(100 + n, SUPERVISOR, born) + comm(100 + n, "svc", born + 1, execs=True)
        assert reported(restarts, begin, born + NANOS, {}) == []
        found = reported(restarts, exits(100 + n, born + NANOS, parent=SUPERVISOR), born + 2 * NANOS, {100 + n: 256})
    assert len(found) == 1


def test_a_worker_that_is_forked_and_never_execs_has_the_name_of_its_parent() -> None:
    records = b"".join(
        fork(100 + n, SUPERVISOR, n * NANOS) + exits(100 + n, n * NANOS + 9, parent=SUPERVISOR) for n in range(4)
    )
    (event,) = reported(Restarts(), records, 9 * NANOS, dict.fromkeys(range(100, 104), 11))
    assert event.comm == "supervisord"


def test_an_exit_code_that_comes_a_tick_early_still_counts() -> None:
    restarts = Restarts()
    assert (
        reported(restarts, lives(2) + fork(102, SUPERVISOR, 2 * NANOS), 2 * NANOS, dict.fromkeys((100, 101, 102), 1))
        == []
    )
    late = comm(102, "svc", 2 * NANOS + 1, execs=True) + exits(102, 3 * NANOS, parent=SUPERVISOR)
    assert len(reported(restarts, late, 3 * NANOS, {})) == 1


@pytest.mark.parametrize("failed", [None, dict.fromkeys(range(100, 10_000), 256)])
def test_a_storm_of_forks_is_left_out_and_leaves_little_behind(failed: Mapping[int, int] | None) -> None:
    restarts = Restarts()
    records = lives(MOST_ALIKE + 1, pace=1_000_000, length=500_000)
    assert reported(restarts, records, NANOS, failed) == []
    assert not restarts._loops
    assert not restarts._alive


def test_a_parent_that_is_gone_keeps_its_name_and_the_usual_end_is_reported() -> None:
    restarts = Restarts()
    failed: dict[int, int] = {**dict.fromkeys(range(100, 104), 256), 110: 9}
    reported(restarts, lives(4), 4 * NANOS, failed)
    last = walk(life(110, 5 * NANOS, 6 * NANOS))
    (event,) = restarts.observe(4 * NANOS + REPORT_EVERY_NS, last, failed, lambda pid: None).events
    assert "supervisord (50)" in event.text
    assert "with code 1" in event.text


def test_after_a_loss_nothing_is_concluded_from_before() -> None:
    restarts = Restarts()
    reported(restarts, lives(2), 2 * NANOS, None)
    restarts.forget()
    assert reported(restarts, life(110, 3 * NANOS, 4 * NANOS), 4 * NANOS, None) == []


def test_a_loop_asks_for_its_parent_and_for_its_next_life() -> None:
    restarts = Restarts()
    records = lives(3) + fork(120, SUPERVISOR, 4 * NANOS) + comm(120, "svc", 4 * NANOS + 1, execs=True)
    asked = restarts.observe(5 * NANOS, walk(records), None, NAMES.get).processes
    assert {pid for pid, *_ in asked} == {SUPERVISOR, 120}


def wrapped(number: int, statuses: dict[int, int], *, inner: int, outer: int, gap: int = NANOS // 100) -> bytes:
    """A life of a supervisor's script that runs a program and ends after it."""
    script, program, born = 200 + 2 * number, 201 + 2 * number, number * 2 * NANOS
    statuses |= {script: outer, program: inner}
    return (
        fork(script, SUPERVISOR, born)
        + comm(script, "run", born + 1, execs=True)
        + life(program, born + NANOS // 100, born + NANOS // 2, "agent", parent=script)
        + exits(script, born + NANOS // 2 + gap, parent=SUPERVISOR)
    )


@pytest.mark.parametrize(("inner", "outer", "code"), [(7 << 8, 7 << 8, 7), (9, (128 + 9) << 8, 137)])
def test_what_fails_below_a_supervisor_s_script_has_its_own_name(inner: int, outer: int, code: int) -> None:
    failed: dict[int, int] = {}
    records = b"".join(wrapped(number, failed, inner=inner, outer=outer) for number in range(4))
    (event,) = reported(Restarts(), records, 9 * NANOS, failed)
    assert (event.comm, event.pid, event.exit_code, event.severity) == ("agent", 207, code, "warning")
    assert "supervisord (50)" in event.text


def test_what_fails_in_a_subshell_is_not_named_by_the_shell() -> None:
    """`while true; do ( agent ); done`: the subshell never execs."""
    records, failed = b"", {}
    for number in range(4):
        shell, program, born = 300 + 2 * number, 301 + 2 * number, number * NANOS
        failed |= {shell: 256, program: 256}
        records += fork(shell, SUPERVISOR, born) + life(program, born + 5, born + NANOS // 2, "agent", parent=shell)
        records += exits(shell, born + NANOS // 2 + 9, parent=SUPERVISOR)
    (event,) = reported(Restarts(), records, 9 * NANOS, failed)
    assert (event.comm, event.exit_code) == ("agent", 1)


def test_a_script_that_fails_for_another_reason_than_its_child_keeps_its_name() -> None:
    for inner, outer, gap in ((256, 512, 9), (256, 256, NANOS)):
        failed: dict[int, int] = {}
        records = b"".join(wrapped(number, failed, inner=inner, outer=outer, gap=gap) for number in range(4))
        (event,) = reported(Restarts(), records, 9 * NANOS, failed)
        assert event.comm == "run"


def test_a_signal_is_a_negative_exit_code() -> None:
    (event,) = reported(Restarts(), lives(4), 4 * NANOS, dict.fromkeys(range(100, 104), 11))
    assert event.exit_code == -11


def test_what_fails_below_a_script_is_described_while_it_lives() -> None:
    failed: dict[int, int] = {}
    restarts = Restarts()
    records = b"".join(wrapped(number, failed, inner=256, outer=256) for number in range(4))
    assert reported(restarts, records, 8 * NANOS, failed)
    born = 9 * NANOS
    alive = fork(400, SUPERVISOR, born) + comm(400, "run", born + 1, execs=True)
    alive += fork(401, 400, born + 2) + comm(401, "agent", born + 3, execs=True)
    processes = restarts.observe(10 * NANOS, walk(alive), {}, NAMES.get).processes
    assert {(400, SUPERVISOR, "run"), (401, 400, "agent")} <= set(processes)
