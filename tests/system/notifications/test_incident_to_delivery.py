"""A real recorder, a line in the real kernel log: webhook, command, node condition and event within 15 seconds."""

import json
import os
import secrets
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.parts import missing
from tests.system.faults.recorder_process import RecorderProcess, until
from tests.system.prometheus.own_prometheus import free_port

# paced: the line in the kernel log is an incident for every recorder of the host, and there are deadlines.
pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.paced, pytest.mark.xdist_group("kernel_log")]
WITHIN_S = 15.0


def test_within_seconds_everywhere(tmp_path, receiver, api):
    if not os.access("/dev/kmsg", os.W_OK):
        missing("/dev/kmsg to write to")
    device = f"eth{secrets.randbelow(10**6)}"
    options = ["--node-name", "node-7", "--webhook", receiver.url, "--on-incident", f"cat > {tmp_path}/seen.json"]
    recorder = RecorderProcess(
        tmp_path / "recording", tmp_path / "said", *options, "--kubernetes", "--clear-after", "10s"
    )
    try:
        recorder.ticks(3)
        until("the conditions exist", lambda: "NICReset" in api.conditions("node-7"))
        began = time.monotonic()
        Path("/dev/kmsg").write_text(f"<4>ena 0000:00:05.0 {device}: Device reset completed successfully\n")

        def reported() -> list[dict]:
            bodies = [json.loads(body) for _, body in receiver.requests]
            return [each for each in bodies if any(mark["device"] == device for mark in each["marks"])]

        until("the condition", lambda: api.conditions("node-7")["NICReset"][0] == "True")
        until("the webhook", reported)
        until("the event", lambda: any(key[0] == "default" for key in api.events))
        took = time.monotonic() - began
        print(f"\nfrom the line in the kernel log to condition, webhook and event: {took:.1f} s")
        until("the command", lambda: (tmp_path / "seen.json").exists() and (tmp_path / "seen.json").stat().st_size)
        (report, *_) = reported()
        assert report["node"] == "node-7" and report["diagnosis"]["version"] == 1
        assert took < WITHIN_S
        until("the condition clears", lambda: api.conditions("node-7")["NICReset"][0] == "False")
        assert recorder.stop() == 0
    finally:
        recorder.kill()
    assert "Traceback" not in recorder.err


@pytest.mark.alone  # it ends within seconds
def test_a_receiver_that_hangs_does_not_hold_the_recorder(tmp_path, receiver):
    if not os.access("/dev/kmsg", os.W_OK):
        missing("/dev/kmsg to write to")
    receiver.answers = [lambda handler: time.sleep(30)]
    recorder = RecorderProcess(
        tmp_path / "recording", tmp_path / "said", "--webhook", receiver.url, "--on-incident", "sleep 1000"
    )
    try:
        recorder.ticks(2)
        Path("/dev/kmsg").write_text("<4>ena 0000:00:05.0 eth9: Device reset completed successfully\n")
        until("the webhook is called", lambda: receiver.requests)
        recorder.ticks(3, patience=20)
        began = time.monotonic()
        assert recorder.stop() == 0
        assert time.monotonic() - began < 5
    finally:
        recorder.kill()


def test_metrics_count_incidents_by_cause_also_where_nobody_is_notified(tmp_path):
    if not os.access("/dev/kmsg", os.W_OK):
        missing("/dev/kmsg to write to")
    port = free_port()
    recorder = RecorderProcess(tmp_path / "recording", tmp_path / "said", "--metrics", f"127.0.0.1:{port}")

    def counted() -> bool:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return b'\nexhume_findings_total{cause="' in answer.read()

    try:
        recorder.ticks(2)
        assert not counted()
        Path("/dev/kmsg").write_text("<4>ena 0000:00:05.0 eth8: Device reset completed successfully\n")
        until("the incident is diagnosed and counted", counted)
        assert recorder.stop() == 0
    finally:
        recorder.kill()
