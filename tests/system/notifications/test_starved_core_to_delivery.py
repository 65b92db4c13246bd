"""A real recorder and a core that a program keeps in the kernel: condition, event and webhook within 15 seconds."""

import json
import os
import time

import pytest
from bench.load import hold_core
from tests.system.faults.recorder_process import RecorderProcess, until

# alone: it takes a core.
pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone, pytest.mark.long]
WITHIN_S = 15.0


def test_a_starved_core_is_reported_everywhere_within_seconds(tmp_path, receiver, api):
    options = ["--node-name", "node-7", "--webhook", receiver.url, "--kubernetes"]
    recorder = RecorderProcess(tmp_path / "recording", tmp_path / "said", *options)
    try:
        until("the conditions exist", lambda: "CPUStarved" in api.conditions("node-7"))
        # A calm time to compare with.
        recorder.ticks(8)
        began = time.monotonic()
        with hold_core() as hog:
            until("the condition", lambda: api.conditions("node-7")["CPUStarved"][0] == "True")
            until("the webhook", lambda: receiver.requests)
            until("the event", lambda: any(key[0] == "default" for key in api.events))
            took = time.monotonic() - began
        report = json.loads(receiver.requests[0][1])
        print(f"\nfrom the first second to condition, webhook and event: {took:.1f} s, {report['cause']}")
        assert max(os.sched_getaffinity(0)) in [mark["cpu"] for mark in report["marks"]]
        assert report["diagnosis"]["findings"][0]["culprit"]["pid"] == hog.pid
        assert took < WITHIN_S
        assert recorder.stop() == 0
    finally:
        recorder.kill()
