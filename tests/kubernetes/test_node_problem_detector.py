"""The files for an existing node-problem-detector: their documented format, and the check script."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.collect.sources.test_kmsg_signatures import LINES as KERNEL_LINES
from tests.go_programs import compiled

from exhume.collect.sources.kmsg_signatures import STARVATION_KINDS
from exhume.kubernetes.conditions import LEAK_CAUSES, QUIET, ConditionType

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy/node-problem-detector"
CHECK = DEPLOY / "exhume-check"
DURATION = re.compile(r"(\d+h)?(\d+m)?(\d+s)?")


def loaded(name):
    return json.loads((DEPLOY / name).read_text())


def test_the_plugin_monitor_has_the_documented_format():
    config = loaded("exhume-plugin-monitor.json")
    assert set(config) == {"plugin", "pluginConfig", "source", "metricsReporting", "conditions", "rules"}
    assert config["plugin"] == "custom"
    settings = config["pluginConfig"]
    assert all(DURATION.fullmatch(settings[name]) for name in ("invoke_interval", "timeout"))
    assert {each["type"]: (each["reason"], each["message"]) for each in config["conditions"]} == QUIET
    for rule in config["rules"]:
        assert set(rule) == {"type", "condition", "reason", "path", "args", "timeout"}
        # A rule may not take longer than the monitor lets it (custompluginmonitor/types/config.go, Validate).
        assert (rule["type"], rule["timeout"]) == ("permanent", settings["timeout"])
        assert rule["args"] == [rule["condition"]]
    assert [rule["condition"] for rule in config["rules"]] == list(ConditionType)


def test_the_kernel_monitor_is_generated_from_the_signatures():
    spec = importlib.util.spec_from_file_location("npd_rules", ROOT / "tools/npd_rules.py")
    npd_rules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(npd_rules)
    assert npd_rules.TARGET.read_text() == npd_rules.rendered(), "run tools/npd_rules.py"


LINES = (
    ("ena 0000:00:05.0 eth0: Device reset completed successfully, Driver info: x", "NicReset"),
    ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kubelet:1234]", "SoftLockup"),
    ("NETDEV WATCHDOG: eth0 (ena): transmit queue 3 timed out 5040 ms", "NicWatchdog"),
    ("INFO: task kworker/u8:3:77 blocked for more than 120 seconds.", "HungTask"),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", "RcuStall"),
    ("usb 1-1: new high-speed USB device number 2 using xhci_hcd", None),
)


@pytest.mark.parametrize(("line", "reason"), LINES)
def test_rules_match_to_the_end_of_a_line(line, reason):
    rules = loaded("exhume-kernel-monitor.json")["rules"]
    assert all(set(rule) == {"type", "reason", "pattern"} and rule["type"] == "temporary" for rule in rules)
    found = {rule["reason"] for rule in rules if re.search(rule["pattern"] + r"\Z", line)}
    assert found == ({reason} if reason else set())


def test_rules_have_no_syntax_that_go_lacks():
    """Go's regexp has neither look-around, back-references, conditionals nor possessive quantifiers."""
    lacking = re.compile(r"\(\?[=!<P(]|\\[1-9Z]|[*+?}]\+")
    patterns = [rule["pattern"] for rule in loaded("exhume-kernel-monitor.json")["rules"]]
    assert len(patterns) > 20
    assert not [pattern for pattern in patterns if lacking.search(pattern)]


@pytest.mark.slow
def test_go_compiles_the_rules_and_matches_the_same_lines():
    """Of all lines that the recorder recognises, those about starvation, and by the rules that Python finds."""
    patterns = [rule["pattern"] for rule in loaded("exhume-kernel-monitor.json")["rules"]]
    starving = [line for line, kind, _ in KERNEL_LINES if kind in STARVATION_KINDS]
    lines = [*starving, *(line for line, _, _ in KERNEL_LINES if line not in starving)]
    found = subprocess.run(
        [compiled(Path(__file__).with_name("match_rules.go"))],
        input=json.dumps({"patterns": patterns, "lines": lines}),
        capture_output=True,
        text=True,
        check=True,
    )
    expected = [[n for n, each in enumerate(patterns) if re.search(each + r"\Z", line)] for line in lines]
    assert json.loads(found.stdout) == expected
    assert all(expected[: len(starving)]) and not any(expected[len(starving) :])


HEALTHY = {"recording": True, "problems": []}
RESET = {"trigger": "nic-reset", "text": "eth0:  reset"}
DYING = {"trigger": "dying-cgroups", "text": "3577 more dying cgroups"}
HOT = {"trigger": "core", "text": "core 3"}


def finding(cause, severity="critical"):
    return {"cause": cause, "severity": severity, "summary": f"because of {cause}"}


@pytest.fixture
def check(tmp_path):
    """Run the script with a program `exhume` that prints these answers."""

    def check(condition, health=HEALTHY, marks=(), diagnosis=None):
        answers = {"health": health, "incidents": {"incidents": list(marks)}, "diagnose": diagnosis}
        for name, answer in answers.items():
            (tmp_path / name).write_text("" if answer is None else json.dumps(answer))
        program = tmp_path / "exhume"
        program.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/called\ncat {tmp_path}/"$1"\n')
        program.chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        done = subprocess.run(
            [sys.executable, CHECK, condition], env={"PATH": path}, capture_output=True, text=True, check=False
        )
        assert not done.stderr and done.stdout.count("\n") == 1
        return done.returncode, done.stdout.strip()

    return check


@pytest.mark.parametrize("condition", ConditionType)
def test_a_quiet_node(check, condition, tmp_path):
    assert check(condition) == (0, QUIET[condition][1])
    assert "diagnose" not in (tmp_path / "called").read_text()


@pytest.mark.parametrize(
    ("condition", "marks", "diagnosis", "expected"),
    [
        ("NICReset", [HOT, RESET], None, (1, "eth0: reset")),
        ("NICReset", [HOT], None, (0, QUIET[ConditionType.NIC_RESET][1])),
        ("CPUStarved", [HOT], {"verdict": "starved", "findings": [finding("rt-hog")]}, (1, "because of rt-hog")),
        ("CPUStarved", [HOT], {"verdict": "starved", "findings": []}, (1, "core 3")),
        ("CPUStarved", [HOT], {"verdict": "degraded", "findings": []}, (0, QUIET[ConditionType.CPU_STARVED][1])),
        ("CPUStarved", [HOT], None, (2, "the recording can't be diagnosed")),
        ("CgroupLeak", [DYING], {"verdict": "healthy", "findings": []}, (1, "3577 more dying cgroups")),
        (
            "CgroupLeak",
            [HOT],
            {"verdict": "starved", "findings": [finding("zombie-memcgs", "warning")]},
            (1, "because of zombie-memcgs"),
        ),
        (
            "CgroupLeak",
            [HOT],
            {"verdict": "healthy", "findings": [finding("zombie-memcgs", "info")]},
            (0, QUIET[ConditionType.CGROUP_LEAK][1]),
        ),
    ],
)
def test_what_it_says(check, condition, marks, diagnosis, expected):
    assert check(condition, marks=marks, diagnosis=diagnosis) == expected


@pytest.mark.parametrize(
    "health", [None, {"recording": False, "problems": []}, {"recording": True, "problems": ["late"]}]
)
def test_without_a_recorder_it_is_not_known(check, health):
    assert check("NICReset", health=health)[0] == 2


def test_without_exhume_it_is_not_known(tmp_path):
    done = subprocess.run(
        [sys.executable, CHECK, "NICReset"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "exhume is not in PATH\n")


def test_it_knows_the_same_causes_and_sentences():
    text = CHECK.read_text()
    assert all(f'"{cause}"' in text for cause in LEAK_CAUSES)
    assert all(message in text for _, message in QUIET.values())
