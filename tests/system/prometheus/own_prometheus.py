"""A Prometheus of the test's own, on loopback, and the rules of the project for it with shorter times."""

import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.parts import need

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy/prometheus/exhume-rules.yml"
SECONDS = {"s": 1, "m": 60, "h": 3600}
_START_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scaled_rules(factor: int) -> str:
    """The rules with every window and `for` divided by a factor; so are the seconds of stalling in such a window, which
    are bounded by its length. Everything else is as it is."""

    def shorter(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) * SECONDS[match[3]] / factor:.0f}s{match[4]}"

    text = re.sub(r"(\[)(\d+)([smh])(\])", shorter, RULES.read_text())
    text = re.sub(r"(for: )(\d+)([smh])(\n)", shorter, text)
    stall = re.compile(r"(increase\(exhume_core_stall_seconds_total\[\w+\]\) > )(\d+)")
    return stall.sub(lambda match: f"{match[1]}{int(match[2]) / factor:g}", text)


class Prometheus:
    """Its HTTP API."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path: str, **params: str) -> Any:
        """The data of an answer; an error of the query fails with its text."""
        try:
            with urllib.request.urlopen(f"{self.address}{path}?{urllib.parse.urlencode(params)}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{params}: {error.read().decode()}") from None

    def query(self, expr: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/api/v1/query", query=expr)["result"]
        return found

    def alerts(self) -> set[tuple[str, str]]:
        """The alerts that fire: the name of each, and the core, unit or program that it is about."""
        found = [alert["labels"] for alert in self.get("/api/v1/alerts")["alerts"] if alert["state"] == "firing"]
        return {(labels["alertname"], labels.get("cpu") or labels.get("name") or "") for labels in found}

    def target(self) -> dict[str, Any]:
        """What is known of the target; empty before it was discovered."""
        found: list[dict[str, Any]] = self.get("/api/v1/targets")["activeTargets"]
        return found[0] if found else {}


@contextmanager
def own_prometheus(directory: Path, target: str, rules: str) -> Iterator[Prometheus]:
    """Scrape a target once a second, and evaluate rules as often."""
    (directory / "rules.yml").write_text(rules)
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{"job_name": "exhume", "static_configs": [{"targets": [target]}]}],
    }
    # JSON is YAML.
    (directory / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                need("prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield _ready(Prometheus(port), process, directory / "prometheus.log")
    finally:
        process.terminate()
        process.wait(30)


def _ready(prometheus: Prometheus, process: subprocess.Popen[bytes], log: Path) -> Prometheus:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{prometheus.address}/-/ready", timeout=5):
                return prometheus
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"Prometheus does not run: {log.read_text()[-2000:]}")
