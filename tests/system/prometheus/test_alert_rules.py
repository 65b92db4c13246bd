"""The alerts: their unit tests by promtool, and what people need to act on them."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.parts import need
from tests.system.prometheus.own_prometheus import RULES, scaled_rules

from exhume.present.metrics.families import FAMILIES

DOCUMENT = RULES.parents[2] / "docs/alerts.md"
ALERTS = re.findall(r"- alert: (\w+)", RULES.read_text())


def promtool(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([need("promtool"), *args], capture_output=True, text=True, check=False)


@pytest.mark.needs("promtool")
def test_the_unit_tests_of_the_rules() -> None:
    done = promtool("test", "rules", str(RULES.with_name("exhume-rules.test.yml")))
    assert done.returncode == 0, done.stdout + done.stderr
    # Each alert has one that expects it to fire.
    tests = RULES.with_name("exhume-rules.test.yml").read_text()
    expected = set(re.findall(r"alertname: (\w+)\n +exp_alerts:", tests))
    assert expected == set(ALERTS)


@pytest.mark.needs("promtool")
def test_the_unit_tests_fail_for_another_rule(tmp_path: Path) -> None:
    (tmp_path / RULES.name).write_text(RULES.read_text().replace("> 0.15", "> 0.95"))
    (tmp_path / "test.yml").write_text(RULES.with_name("exhume-rules.test.yml").read_text())
    assert promtool("test", "rules", str(tmp_path / "test.yml")).returncode != 0


@pytest.mark.needs("promtool")
def test_rules_with_shorter_times_are_valid(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(scaled_rules(20))
    assert promtool("check", "rules", str(tmp_path / "rules.yml")).returncode == 0
    assert "[15s]" in scaled_rules(20)
    assert "5m]" not in scaled_rules(20)


def test_every_alert_has_a_runbook() -> None:
    assert len(ALERTS) == 7
    headings = re.findall(r"^## (\w+)$", DOCUMENT.read_text(), re.MULTILINE)
    assert headings == ALERTS
    links = re.findall(r"runbook_url: docs/alerts.md#(\w+)", RULES.read_text())
    assert links == [name.lower() for name in ALERTS]
    for section in re.split(r"^## ", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]:
        assert re.findall(r"\*\*(\w+)\.\*\*", section) == ["Meaning", "Check", "Do"]


def test_the_documented_commands_make_runbooks_links() -> None:
    (shell,) = re.findall(r"^(sed .*) > exhume-rules.yml$", DOCUMENT.read_text(), re.MULTILINE)
    program, script, rules = shlex.split(shell)
    (site,) = re.findall(r"`(s\|runbook_url[^`]*)`", DOCUMENT.read_text())
    for each in (script, site):
        done = subprocess.run([program, each, RULES.parents[2] / rules], capture_output=True, text=True, check=True)
        links = re.findall(r"runbook_url: https://\S+/alerts\.(?:md|html)#(\w+)", done.stdout)
        assert links == [name.lower() for name in ALERTS]


def test_rules_use_only_metrics_that_exist() -> None:
    known = {family.sample for family in FAMILIES}
    expressions = "\n".join(
        re.findall(r"expr: (.*?)\n +(?:- |for:|labels:|#)", RULES.read_text() + "\n  - ", re.DOTALL)
    )
    used = set(re.findall(r"(?<![:\w])exhume_\w+", expressions))
    assert len(used) > 15
    assert used <= known
