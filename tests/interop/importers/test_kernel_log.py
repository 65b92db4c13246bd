"""Kernel logs in every form that dmesg, the journal and syslog have."""

import json
import os
import subprocess

import pytest
from tests.interop.importers.made_up import START, imported, put

from exhume.model.clock import NANOS
from exhume.model.tables import INCIDENT

RESET = (
    "ena 0000:00:05.0 eth0: TX q 5 is paused for too long (threshold 5000000). "
    "Time since last napi 6596000 usec. napi scheduled: 1"
)
PLAIN = "usb 1-1: new high-speed USB device"
# The kernel's stamps of the two lines: START is 1000 s after boot.
FORMS = {
    "dmesg": f"[  900.500000] {PLAIN}\n[ 1000.250000] {RESET}\n",
    "raw": f"<6>[  900.500000] {PLAIN}\n<4>[ 1000.250000] {RESET}\n",
    "decoded": f"kern  :info  : [  900.500000] {PLAIN}\nkern  :warn  : [ 1000.250000] {RESET}\n",
    "callers": f"[  900.500000][    T1] {PLAIN}\n[ 1000.250000][   C39] {RESET}\n",
    "delta": f"[  900.500000 <    0.000000>] {PLAIN}\n[ 1000.250000 <   99.750000>] {RESET}\n",
    "json": json.dumps({"dmesg": [{"pri": 6, "time": 900.5, "msg": PLAIN}, {"pri": 4, "time": 1000.25, "msg": RESET}]}),
    "iso": f"2026-03-01T02:58:20,500000+00:00 {PLAIN}\n2026-03-01T03:00:00,250000+00:00 {RESET}\n",
    "journal iso": f"2026-03-01T03:58:20.500000+0100 n1 kernel: {PLAIN}\n"
    f"2026-03-01T04:00:00.250000+0100 n1 kernel: {RESET}\n"
    "2026-03-01T04:00:01.0+0100 n1 sshd[12]: not the kernel\n",
    "journal json": "".join(
        json.dumps({"__REALTIME_TIMESTAMP": str(at), "MESSAGE": text, "_TRANSPORT": kind, "_HOSTNAME": "n1"}) + "\n"
        for at, text, kind in (
            ((START - 99 * NANOS - NANOS // 2) // 1000, list(PLAIN.encode()), "kernel"),
            ((START + NANOS // 4) // 1000, RESET, "kernel"),
            (START // 1000, "not the kernel", "syslog"),
        )
    ),
}
SECONDS = {
    "ctime": f"[Sun Mar  1 02:58:20 2026] {PLAIN}\n[Sun Mar  1 03:00:00 2026] {RESET}\n",
    "reltime": f"[Mar 1 02:58] old\n[ +20.000000] {PLAIN}\n[ +100.000000] {RESET}\n",
    "syslog": f"Mar  1 02:58:20 n1 kernel: [  900.500000] {PLAIN}\nMar  1 02:59:00 n1 cron[7]: other\n"
    f"Mar  1 03:00:00 n1 kernel: [ 1000.250000] {RESET}\n",
    "rsyslog": f"2026-03-01T02:58:20+00:00 n1 kernel: {PLAIN}\n2026-03-01T03:00:00+00:00 n1 kernel: {RESET}\n",
}


def events_of(recording):
    return [event for event in recording.events() if event.kind != INCIDENT]


@pytest.mark.parametrize("name", FORMS)
def test_lines_have_their_time_and_meaning(tmp_path, name):
    result, recording = imported(tmp_path, put(tmp_path, "log", FORMS[name]), start=START - 99 * NANOS - NANOS // 2)
    assert result.complete
    plain, reset = events_of(recording)
    assert (plain.text, plain.kind) == (PLAIN, "kernel-line")
    assert (reset.text, reset.kind, reset.device, reset.queue, reset.severity) == (
        RESET,
        "nic-tx-paused",
        "eth0",
        5,
        "critical",
    )
    assert reset.value == pytest.approx(6.596)
    assert plain.wall == START - 99 * NANOS - NANOS // 2
    assert reset.wall == START + NANOS // 4
    marks = [event for event in recording.events() if event.kind == INCIDENT]
    assert [(mark.trigger, mark.wall) for mark in marks] == [("nic-tx-paused", reset.wall)]


@pytest.mark.parametrize("name", SECONDS)
def test_forms_with_whole_seconds(tmp_path, name):
    path = put(tmp_path, "log", SECONDS[name])
    # Its last change has the year.
    os.utime(path, ns=(START + 5 * NANOS, START + 5 * NANOS))
    _, recording = imported(tmp_path, path)
    found = [event for event in events_of(recording) if event.text in (PLAIN, RESET)]
    assert [(event.wall - START) // NANOS for event in found] == [-100, 0]
    assert len(events_of(recording)) == (3 if name == "reltime" else 2)


def test_a_year_ago_when_the_month_is_later(tmp_path):
    path = put(tmp_path, "log", "Dec 31 23:59:59 n1 kernel: last\n")
    os.utime(path, ns=(START, START))
    _, recording = imported(tmp_path, path)
    assert events_of(recording)[0].wall == 1_767_225_599 * NANOS


def test_a_wrapped_line_is_one(tmp_path):
    cut = RESET.index("Time since")
    text = f"[ 1000.250000] {RESET[: cut - 1]}\n[ 1000.250001] {RESET[cut:]}\n[ 1000.260000] other\n"
    _, recording = imported(tmp_path, put(tmp_path, "log", text))
    assert [event.kind for event in events_of(recording)] == ["nic-tx-paused", "kernel-line"]


def test_two_logs_of_the_same_lines_have_them_once(tmp_path):
    one, other = put(tmp_path, "a", FORMS["iso"]), put(tmp_path, "b", SECONDS["ctime"])
    _, recording = imported(tmp_path, one, other)
    assert [event.text for event in events_of(recording)] == [PLAIN, RESET]
    _, recording = imported(tmp_path, put(tmp_path, "c", FORMS["journal iso"]))
    assert [event.text for event in events_of(recording)] == [PLAIN, RESET]


def test_lines_since_boot_need_a_start(tmp_path):
    result, _ = imported(tmp_path, put(tmp_path, "log", FORMS["dmesg"]), put(tmp_path, "x", FORMS["iso"]), start=None)
    assert result.files[0].needs_start


@pytest.mark.root
@pytest.mark.needs("dmesg")
@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("-T",),
        ("-x",),
        ("-r",),
        ("-J",),
        ("--time-format", "iso"),
        ("--time-format", "delta"),
        ("--time-format", "reltime"),
    ],
)
def test_real_dmesg(tmp_path, flags):
    def lines() -> set[str]:
        said = subprocess.run(["dmesg", "-t"], capture_output=True, check=True).stdout.decode("utf-8", "replace")
        return {line.strip() for line in said.splitlines() if line.strip() and not line.startswith(" ")}

    # Other programs write to the log meanwhile, and the kernel overwrites its beginning.
    before = lines()
    # As differences alone it has no beginning.
    flags = ("-d",) if "delta" in flags else flags
    said = subprocess.run(["dmesg", *flags], capture_output=True, check=True, env={**os.environ, "TZ": "UTC"}).stdout
    wanted = before & lines()
    result, recording = imported(tmp_path, put(tmp_path, "log", said))
    assert result.files[0].error is None
    texts = {event.text.strip() for event in events_of(recording)}
    # Some lines are the rest of the one before.
    assert len(wanted - texts) <= len(wanted) // 50


@pytest.mark.parametrize("line", ["400", '"text"', "[1]", "null"])
def test_json_that_is_no_entry_of_the_journal_is_left_out(tmp_path, line):
    path = put(tmp_path, "journal", FORMS["journal json"] + line + "\n")
    result, recording = imported(tmp_path, path)
    assert not result.complete
    assert [event.text for event in events_of(recording)] == [PLAIN, RESET]
