"""From marks to reports."""

import json
import threading
import time

import pytest
from tests.notify.conftest import PATIENCE_S, WALL, finding, incident_rows, tick_at
from tests.synthetic import synthetic_recording

from exhume.diagnose.symptoms import Symptom
from exhume.model.clock import NANOS
from exhume.model.finding import Severity
from exhume.notify.incidents import ChildDiagnosis, Notifier, marks_of
from exhume.notify.limits import DiagnosisPace
from exhume.notify.report import UNEXPLAINED, Mark


class Recorded:
    """A sink that keeps what it gets."""

    def __init__(self, limited=True):
        self.limited, self.got = limited, []

    def start(self):
        pass

    def deliver(self, report):
        self.got.append(report)

    def close(self, grace_s):
        pass


@pytest.fixture
def notifier():
    made = []

    def notifier(*sinks, diagnose=None, **options):
        times = {"settle_s": 0.05, "second_look_s": 0.05, **options}
        found = diagnose or (lambda mark, _: ({"verdict": "starved", "findings": [finding()]}, ""))
        made.append(Notifier("node-1", sinks, found, **times))
        made[-1].start()
        return made[-1]

    yield notifier
    for each in made:
        each.close(1)


def observe(each, second, *triggers, **columns):
    rows = [incident_rows(int((second - 0.5) * NANOS), trigger, **columns)["events"] for trigger in triggers]
    each.observe(tick_at(second), {"events": rows}, [])


def test_marks_have_their_wall_time():
    (mark,) = marks_of(incident_rows(9 * NANOS // 2, "nic-reset", device="eth0")["events"], tick_at(5))
    assert mark == Mark(9 * NANOS // 2, WALL + 9 * NANOS // 2, "nic-reset", "marked nic-reset", None, "eth0")


def test_marks_of_one_incident_are_one_report(notifier, eventually):
    sink = Recorded()
    each = notifier(sink, settle_s=0.2)
    observe(each, 5, "core", "ksoftirqd", cpu=3)
    observe(each, 6, "nic-reset")
    eventually("a report", lambda: sink.got)
    (report,) = sink.got
    assert [mark.trigger for mark in report.marks] == ["core", "ksoftirqd", "nic-reset"]
    assert (report.node, report.cause) == ("node-1", "softirq-storm")


def test_a_notifier_without_marks_ends_at_once(notifier):
    each = notifier(Recorded(), settle_s=PATIENCE_S)
    began = time.monotonic()
    each.close(PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S / 10


def test_a_held_core_is_judged_with_the_next_tick_and_others_later(notifier, eventually):
    sink = Recorded(limited=False)
    each = notifier(sink, settle_s=PATIENCE_S)
    observe(each, 5, "core", cpu=3)
    time.sleep(0.2)
    assert not sink.got
    observe(each, 6)
    eventually("a report", lambda: sink.got)
    observe(each, 20, "core", "ksoftirqd", cpu=4)
    observe(each, 21)
    time.sleep(0.2)
    assert len(sink.got) == 1


def test_a_held_core_waits_for_the_marks_of_its_incident(notifier, eventually):
    sink = Recorded()
    each = notifier(sink, settle_s=0.5)
    observe(each, 5, "core", cpu=3)
    time.sleep(0.1)
    observe(each, 6, "nic-reset")
    time.sleep(0.1)
    assert not sink.got
    observe(each, 7, "ksoftirqd", cpu=3)
    eventually("a report", lambda: sink.got)
    assert [mark.trigger for mark in sink.got[0].marks] == ["core", "nic-reset", "ksoftirqd"]


def test_a_growth_next_to_another_incident_is_a_report_of_its_own(notifier, eventually):
    explanations = {"dying-cgroups": "zombie-memcgs", "core": "softirq-storm"}

    def diagnose(mark, _):
        return {"verdict": "starved", "findings": [finding() | {"cause": explanations[mark.trigger]}]}, ""

    sink = Recorded()
    each = notifier(sink, settle_s=0.2, diagnose=diagnose)
    observe(each, 5, "dying-cgroups", "core")
    eventually("both reports", lambda: len(sink.got) == 2)
    found = [(report.cause, [mark.trigger for mark in report.marks]) for report in sink.got]
    assert found == [("zombie-memcgs", ["dying-cgroups"]), ("softirq-storm", ["core"])]


def test_the_same_cause_is_reported_once_but_counted_where_it_is_not_limited(notifier, eventually):
    limited, unlimited, causes = Recorded(), Recorded(limited=False), []
    each = notifier(limited, unlimited, pace=DiagnosisPace(first_s=0.0, longest_s=0.0))
    each.on_cause = causes.append
    for count in (1, 2, 3):
        observe(each, 5 + count, "core")
        eventually("a report", lambda count=count: len(unlimited.got) == count)
    assert len(limited.got) == 1
    assert causes == ["softirq-storm"] * 3


def test_what_goes_on_is_not_diagnosed_again_and_again(notifier, eventually):
    """Of the marks of one trigger the first is diagnosed, and another core's; another trigger at once."""
    looks, sink = [], Recorded(limited=False)
    diagnosis = {"verdict": "starved", "findings": [finding()]}
    each = notifier(sink, diagnose=lambda mark, _: looks.append(mark) or (diagnosis, ""))
    for second in (5, 40, 75):
        observe(each, second, "core", cpu=3)
        eventually("its marks are taken", lambda: not each._marks)
    observe(each, 110, "core", cpu=5)
    eventually("another core", lambda: len(sink.got) == 2)
    observe(each, 111, "nic-reset")
    eventually("another trigger", lambda: len(sink.got) == 3)
    assert [(mark.trigger, mark.cpu) for mark in looks] == [("core", 3), ("core", 5), ("nic-reset", None)]


def test_what_nothing_explains_is_looked_at_twice_and_reported(notifier, eventually):
    looks, sink = [], Recorded()
    each = notifier(sink, diagnose=lambda mark, _: looks.append(mark) or ({"verdict": "unknown", "findings": []}, ""))
    observe(each, 5, "core")
    eventually("a report", lambda: sink.got)
    assert (sink.got[0].cause, len(looks)) == (UNEXPLAINED, 2)


@pytest.mark.parametrize(
    ("triggers", "symptoms", "looks"),
    [
        (["nic-reset"], [], 1),
        (["nic-reset", "soft-lockup"], ["log", "log"], 1),
        (["nic-reset"], ["log", "waiting"], 2),
        (["nic-reset", "core"], ["log"], 2),
        (["dying-cgroups"], [], 2),
    ],
)
def test_a_logged_line_waits_for_more_rows_only_next_to_a_symptom(notifier, eventually, triggers, symptoms, looks):
    codes = [{"code": symptom_of(kind).link.code} for kind in symptoms]
    diagnosis, calls, sink = {"verdict": "starved", "findings": [], "symptoms": codes}, [], Recorded()
    each = notifier(sink, diagnose=lambda mark, _: calls.append(mark) or (diagnosis, ""))
    observe(each, 5, *triggers)
    eventually("a report", lambda: sink.got)
    assert (sink.got[0].cause, len(calls)) == (UNEXPLAINED, looks)


def symptom_of(kind):
    return Symptom(kind, Severity.CRITICAL, WALL, "")


def test_a_failed_diagnosis_is_reported_as_such(notifier, eventually, caplog):
    sink = Recorded()
    observe(notifier(sink, diagnose=lambda *_: ({}, "it ended with code 2")), 5, "core")
    eventually("a report", lambda: sink.got)
    found = json.loads(sink.got[0].encoded())
    assert (found["problem"], found["diagnosis"]) == ("it ended with code 2", None)
    assert "not diagnosed" in caplog.text


def test_observing_never_waits_and_marks_are_bounded(notifier):
    busy = threading.Event()

    def diagnose(mark, cancel):
        busy.set()
        while not cancel.is_set():
            time.sleep(0.01)
        return {}, "cancelled"

    each = notifier(Recorded(), diagnose=diagnose)
    observe(each, 5, "core")
    assert busy.wait(10)
    began = time.monotonic()
    for second in range(6, 2006):
        observe(each, second, "core")
    assert time.monotonic() - began < 5
    assert len(each._marks) <= 64
    began = time.monotonic()
    each.close(2)
    assert time.monotonic() - began < 3


def test_a_tick_without_a_mark_costs_nothing(notifier):
    diagnosed = []
    each = notifier(Recorded(), diagnose=lambda mark, _: diagnosed.append(mark) or ({}, ""))
    each.observe(tick_at(5), {"cpu": [{}], "events": [{"time": [1], "kind": ["kernel-line"]}]}, [])
    time.sleep(0.2)
    assert not diagnosed


@pytest.mark.slow
def test_the_child_diagnoses_a_recording(tmp_path_factory):
    from exhume.store.read.recording import Recording

    directory = synthetic_recording(tmp_path_factory, cores=8, minutes=4, seed=7).directory

    mark = Recording.open(directory).events(Recording.open(directory).span(), ["incident"])[0]
    found, problem = ChildDiagnosis(directory)(Mark(0, mark.wall, "core", ""), threading.Event())
    assert (problem, found["version"]) == ("", 1)
    assert found["findings"]


def test_a_recording_that_is_not_there(tmp_path):
    found, problem = ChildDiagnosis(tmp_path / "none")(Mark(0, WALL, "core", ""), threading.Event())
    assert found == {} and "ended with code 3" in problem
