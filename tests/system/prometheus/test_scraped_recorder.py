"""A real Prometheus scrapes a real recorder while a scenario of the lab runs: the right alert fires and later resolves,
no other does, and every query of the dashboards is answered.

Windows are a thirtieth of the rules' (`scaled_rules`), so that this takes about a minute.
"""

import http.client
import subprocess
import time
from collections.abc import Iterator

import pytest
from tests.system.faults.recorder_process import PROGRAM, RecorderProcess, until
from tests.system.prometheus.own_prometheus import Prometheus, free_port, own_prometheus, scaled_rules
from tests.system.prometheus.test_dashboards import grafana_dashboards

from exhume.present.metrics.families import BUSIEST, DYING, INCIDENTS, RESTARTS, STALL

# Alone: no other alert may fire, and other tests stall cores, overcommit the host and write resets of network cards to
# the kernel log.
pytestmark = [pytest.mark.root, pytest.mark.needs("prometheus", "ip"), pytest.mark.slow, pytest.mark.alone]

FACTOR = 30
# The window of restarts by half again: an alert about them resolves when it has passed.
RESTARTS_WINDOW = ("[30s]", "[15s]")
STORM_S = 6
NAME = "tumbler"
# Panels that are empty where nothing happened, or where the kernel does not count it.
MAY_BE_EMPTY = {
    "Incidents",
    "Incidents by what they were marked for",
    "Time until there are so many dying cgroups",
    "Timeouts and resets of network devices",
    "Restarts",
    "What is restarted most",
    "Losses",
    "Pressure",
    "Longest wait of a ksoftirqd",
}


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, RecorderProcess, int]]:
    folder = tmp_path_factory.mktemp("scraped")
    port = free_port()
    recorder = RecorderProcess(folder / "recording", folder / "said", "--metrics", f"127.0.0.1:{port}")
    try:
        recorder.recording()
        rules = scaled_rules(FACTOR)
        assert rules.count(RESTARTS_WINDOW[0]) == 1
        with own_prometheus(folder, f"127.0.0.1:{port}", rules.replace(*RESTARTS_WINDOW)) as prometheus:
            until("the first scrape", lambda: prometheus.target().get("health") == "up", every=0.2)
            yield prometheus, recorder, port
    finally:
        recorder.process.terminate()
        recorder.process.wait(30)


def play(prometheus: Prometheus, scenario: str, seconds: int, alert: str) -> None:
    """Run a scenario of the lab: the alert fires, about the lab's core or program, and resolves; no other kind of alert
    fires that did not fire before."""
    # The counters are there before anything happens; two scrapes make a rate.
    until("a second scrape", lambda: len(prometheus.query(f"rate({STALL.sample}[10s])")) > 0, every=0.2)
    before = fired = prometheus.alerts()
    lab = subprocess.Popen(
        [PROGRAM, "lab", "run", scenario, "--for", f"{seconds}s", "--name", NAME, "--core", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    while lab.poll() is None:
        fired = fired | prometheus.alerts()
        time.sleep(0.3)
    output = lab.communicate()[0].decode()
    assert lab.returncode == 0, output
    mine = alert, "1" if alert == "ExhumeCoreStall" else NAME

    def fires() -> bool:
        nonlocal fired
        now = prometheus.alerts()
        fired = fired | now
        return mine in now

    # The last scrape and evaluation of what the lab did come after its end.
    until(f"{mine} fires", lambda: fires() or mine in fired, patience=8, every=0.3)
    until(f"{mine} resolves", lambda: not fires(), every=0.3)
    assert {name for name, _ in fired - before} - {alert} == set()


def test_a_crash_loop_fires_its_alert_alone_and_it_resolves(scraped: tuple[Prometheus, RecorderProcess, int]) -> None:
    prometheus, _, _ = scraped
    play(prometheus, "crash-loop", 12, "ExhumeCrashLoop")
    assert prometheus.query(f'{RESTARTS.sample}{{kind="program", name!="other"}} > 4')


@pytest.mark.long
def test_a_stalled_core_fires_its_alert_alone_and_it_resolves(
    scraped: tuple[Prometheus, RecorderProcess, int],
) -> None:
    """Needs the cores for itself: next to other work no core is at 95% in the kernel."""
    prometheus, _, _ = scraped
    play(prometheus, "softirq-storm", STORM_S, "ExhumeCoreStall")
    stalled = [each for each in prometheus.query(STALL.sample) if float(each["value"][1]) > STORM_S / 2]
    assert len(stalled) == 1
    assert sum(float(each["value"][1]) for each in prometheus.query(INCIDENTS.sample)) >= 1
    assert float(prometheus.query(f'{BUSIEST.sample}{{state="softirq"}}')[0]["value"][1]) > 0.5


def test_every_query_of_the_dashboards_is_answered(scraped: tuple[Prometheus, RecorderProcess, int]) -> None:
    prometheus, _, _ = scraped
    replaced = {"$job": "exhume", "$instance": ".+", "$__rate_interval": "10s", "$__range": "60s", "[1h]": "[60s]"}
    empty, asked = set(), 0
    for dashboard in grafana_dashboards.dashboards().values():
        for panel in dashboard["panels"]:
            found = []
            for target in panel["targets"]:
                expr = target["expr"]
                for variable, value in replaced.items():
                    expr = expr.replace(variable, value)
                found += prometheus.query(expr)
                asked += 1
            if not found:
                empty.add(panel["title"])
    assert asked > 30
    assert empty <= MAY_BE_EMPTY


def test_every_rule_is_evaluated_without_errors(scraped: tuple[Prometheus, RecorderProcess, int]) -> None:
    prometheus, _, _ = scraped
    rules = [rule for group in prometheus.get("/api/v1/rules")["groups"] for rule in group["rules"]]
    assert len(rules) == 14
    assert {rule["health"] for rule in rules} == {"ok"}
    target = prometheus.target()
    assert target["lastError"] == ""
    assert prometheus.query(DYING.sample)


def test_a_hundred_scrapes_a_second_and_hanging_clients_lose_no_second(
    scraped: tuple[Prometheus, RecorderProcess, int],
) -> None:
    prometheus, recorder, port = scraped
    before = float(prometheus.query("exhume_recorder_ticks_total")[0]["value"][1])
    hanging = [http.client.HTTPConnection("127.0.0.1", port, timeout=10) for _ in range(200)]
    for connection in hanging:
        connection.connect()
        connection.putrequest("GET", "/metrics")
    began, scrapes = time.monotonic(), 0
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    while (elapsed := time.monotonic() - began) < 3:
        if scrapes >= elapsed * 100:
            time.sleep(0.002)
            continue
        client.request("GET", "/metrics", headers={"accept-encoding": "gzip"})
        assert client.getresponse().read()
        scrapes += 1
    client.close()
    assert scrapes >= 240
    recorder.ticks(1)
    until("another scrape", lambda: len(prometheus.query(f"exhume_recorder_ticks_total > {before + 2}")) > 0, every=0.2)
    late = prometheus.query('exhume_recorder_losses_total{kind="late-tick"}')
    assert not late or float(late[0]["value"][1]) == 0
    for connection in hanging:
        connection.close()


def test_a_recorder_that_is_away_is_reported(scraped: tuple[Prometheus, RecorderProcess, int]) -> None:
    prometheus, recorder, _ = scraped
    recorder.process.terminate()
    assert recorder.process.wait(30) == 0
    until("the alert", lambda: ("ExhumeRecorderBlind", "") in prometheus.alerts(), every=0.5)
