"""Generates the dashboards for Grafana from the metric families.

tools/grafana_dashboards.py            write deploy/grafana/*.json
tools/grafana_dashboards.py --check    exit 1 if a committed file is stale

Queries use the names of `families`, so that one that is renamed or removed fails here. Units are Grafana's.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.present.metrics import families as f

TARGET = Path(__file__).resolve().parents[1] / "deploy/grafana"
# Grafana 10: older versions of this number are migrated when a dashboard is imported.
SCHEMA = 38
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NODE = '{job=~"$job", instance=~"$instance"}'
FLEET = '{job=~"$job"}'
# The page of a node at the time that is shown: milliseconds since the epoch, as the page has them.
PAGE = "${page:raw}/#since=${__from}&until=${__to}&tab=diagnosis"


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and the legend of its series."""

    expr: str
    legend: str
    # Of the last moment alone, for tables and single values.
    instant: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of a dashboard; `width` is of 24 columns."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    text: str = ""
    stacked: bool = False
    thresholds: tuple[float, ...] = ()
    most: float | None = None
    legend_table: bool = False


def rate(family: f.Family, labels: str = NODE, window: str = "$__rate_interval") -> str:
    return f"rate({family.sample}{labels}[{window}])"


def increase(family: f.Family, labels: str = NODE, window: str = "$__range") -> str:
    return f"increase({family.sample}{labels}[{window}])"


def also(labels: str, more: str) -> str:
    """A selector with one more condition."""
    return f"{labels[:-1]}, {more}}}"


_WORKLOAD = "{{namespace}} {{pod}}{{cgroup}}"
_WORKLOADS = also(NODE, f'cgroup!="{f.OTHER}"')
_NIC = 'trigger=~"nic-.+"'
_SOON = 'threshold="1000"'
_NAMED = f'name!="{f.OTHER}"'

NODE_PANELS = (
    Panel(
        "Busiest core, by state",
        (Query(f.BUSIEST.sample + also(NODE, 'state!~"idle|iowait"'), "{{state}}"),),
        unit="percentunit",
        stacked=True,
        most=1,
        text="The busiest second of a core in the last minute. An average over all cores hides it.",
    ),
    Panel(
        "Stalled cores",
        (Query(rate(f.STALL), "core {{cpu}}"),),
        unit="percentunit",
        text="The part of the time in which a core was at 95% or more in the kernel.",
    ),
    Panel(
        "Threads that wait for each core",
        (
            Query(
                f"{rate(f.RUN_QUEUE)} / {f.CORES.sample}{NODE} or"
                f" clamp_min({rate(f.RUNNABLE)} / {f.CORES.sample}{NODE} - 1, 0)",
                "on average",
            ),
            Query(f"{f.WORST_QUEUE.sample}{NODE}", "on the worst core, in a second"),
        ),
        thresholds=(1.5,),
    ),
    Panel(
        "Longest wait of a ksoftirqd",
        (Query(f"{f.KSOFTIRQD_LONGEST.sample}{NODE}", "in the last minute"),),
        unit="s",
        thresholds=(0.5, 5),
        text="A network driver's watchdog fires after five seconds. Of one that takes turns with other threads, the "
        "mean of its waits.",
    ),
    Panel(
        "Memory cgroups",
        (
            Query(f"{f.DYING.sample}{NODE}", "dying ({{hierarchy}})"),
            Query(f"{f.VISIBLE.sample}{NODE}", "visible ({{hierarchy}})"),
        ),
        thresholds=(1000,),
    ),
    Panel(
        "Time until there are so many dying cgroups",
        (Query(f"{f.FORECAST.sample}{NODE} < 30 * 86400", "{{threshold}} ({{hierarchy}})"),),
        unit="s",
        text="At the present pace. Nothing is shown where they don't grow.",
    ),
    Panel(
        "Cgroups that were made",
        (Query(f"sum by (path) ({rate(f.MADE)})", "{{path}}"),),
        unit="ops",
        legend_table=True,
    ),
    Panel(
        "Cgroups that were leaked",
        (Query(f"sum by (path) ({rate(f.LEAKED)})", "{{path}}"),),
        unit="ops",
        legend_table=True,
    ),
    Panel(
        "Timeouts and resets of network devices",
        (
            Query(
                f"sum by (device, driver, reason) ({increase(f.NIC_TIMEOUTS)})",
                "{{device}} {{driver}} {{reason}}",
                True,
            ),
            Query(
                f"sum by (device, driver, reason) ({increase(f.NIC_RESETS)})",
                "reset: {{device}} {{driver}} {{reason}}",
                True,
            ),
        ),
        kind="bargauge",
    ),
    Panel(
        "Incidents",
        (Query(f"sum by (trigger) ({increase(f.INCIDENTS)}) > 0", "{{trigger}}", True),),
        kind="bargauge",
        text="Moments that the recorder marked: exhume incidents lists them.",
    ),
    Panel(
        "Direct reclaim, as a part of CPU time",
        (
            Query(
                f"{rate(f.RECLAIM, _WORKLOADS, '5m')} / {rate(f.SAMPLED, _WORKLOADS, '5m')}",
                _WORKLOAD,
            ),
        ),
        unit="percentunit",
        thresholds=(0.15,),
        legend_table=True,
    ),
    Panel(
        "Throttled",
        (Query(rate(f.THROTTLED, _WORKLOADS, "5m"), _WORKLOAD),),
        unit="percentunit",
        legend_table=True,
        text="Seconds of a second in which threads were held back by a CPU quota.",
    ),
    Panel(
        "Pressure",
        (Query(rate(f.PRESSURE), "{{resource}} {{kind}}"),),
        unit="percentunit",
        text="The part of the time in which some or all (full) tasks stalled.",
    ),
    Panel(
        "Restarts",
        (
            Query(
                f"sum by (kind, namespace, name) ({increase(f.RESTARTS, also(NODE, _NAMED), '1h')})",
                "{{kind}} {{namespace}} {{name}}",
            ),
        ),
        text="Within an hour.",
        legend_table=True,
    ),
    Panel(
        "Cost of the recorder",
        (Query(f"sum without (mode) ({rate(f.OWN_CPU)})", "cores"),),
        unit="percentunit",
        width=8,
        thresholds=(0.08,),
    ),
    Panel("Memory of the recorder", (Query(f"{f.OWN_MEMORY.sample}{NODE}", "resident"),), unit="bytes", width=8),
    Panel(
        "Losses",
        (Query(f"sum by (source, kind) ({rate(f.LOSSES)})", "{{source}} {{kind}}"),),
        unit="ops",
        width=8,
        text="What was not recorded: exhume info has the reasons.",
    ),
)

FLEET_PANELS = (
    Panel("Recorders", (Query(f"count({f.BUILD.sample}{FLEET})", "", True),), kind="stat", width=4, height=4),
    Panel(
        "Recorders that stand still",
        (Query(f"count({f.TICK_AGE.sample}{FLEET} > 30) or vector(0)", "", True),),
        kind="stat",
        width=4,
        height=4,
        thresholds=(1,),
    ),
    Panel(
        "Nodes with a stalled core",
        (Query(f"count(max by (instance) ({increase(f.STALL, FLEET, '5m')}) > 3) or vector(0)", "", True),),
        kind="stat",
        width=4,
        height=4,
        thresholds=(1,),
        text="Three seconds or more within five minutes.",
    ),
    Panel(
        "Nodes whose zombies grow",
        (
            Query(
                f"count(max by (instance) ({f.FORECAST.sample}{also(FLEET, _SOON)} < 86400)) or vector(0)",
                "",
                True,
            ),
        ),
        kind="stat",
        width=4,
        height=4,
        thresholds=(1,),
    ),
    Panel(
        "Nodes with NIC trouble",
        (
            Query(
                f"count(sum by (instance) ({increase(f.INCIDENTS, also(FLEET, _NIC), '1h')}) > 0) or vector(0)",
                "",
                True,
            ),
        ),
        kind="stat",
        width=4,
        height=4,
        thresholds=(1,),
        text="Within an hour.",
    ),
    Panel(
        "Incidents an hour",
        (Query(f"sum({increase(f.INCIDENTS, FLEET, '1h')})", "", True),),
        kind="stat",
        width=4,
        height=4,
    ),
    Panel(
        "Nodes with the most stalled time",
        (Query(f"topk(20, sum by (instance) ({increase(f.STALL, FLEET)}))", "{{instance}}", True),),
        unit="s",
        kind="bargauge",
        height=10,
    ),
    Panel(
        "Nodes with the most dying cgroups",
        (Query(f"topk(20, max by (instance) ({f.DYING.sample}{FLEET}))", "{{instance}}", True),),
        kind="bargauge",
        height=10,
    ),
    Panel(
        "Stalled time by node",
        (Query(f"topk(10, max by (instance) ({rate(f.STALL, FLEET)}))", "{{instance}}"),),
        unit="percentunit",
        text="Of the worst core of each node.",
    ),
    Panel(
        "Dying cgroups by node",
        (Query(f"topk(10, max by (instance) ({f.DYING.sample}{FLEET}))", "{{instance}}"),),
    ),
    Panel(
        "What leaks cgroups",
        (Query(f"topk(20, sum by (path) ({increase(f.LEAKED, FLEET)}))", "{{path}}", True),),
        kind="bargauge",
        height=10,
    ),
    Panel(
        "What is restarted most",
        (
            Query(
                f"topk(20, sum by (kind, namespace, name) ({increase(f.RESTARTS, also(FLEET, _NAMED))}))",
                "{{kind}} {{namespace}} {{name}}",
                True,
            ),
        ),
        kind="bargauge",
        height=10,
    ),
    Panel(
        "Incidents by what they were marked for",
        (Query(f"sum by (trigger) ({increase(f.INCIDENTS, FLEET, '1h')}) > 0", "{{trigger}}"),),
        stacked=True,
    ),
    Panel(
        "Versions",
        (Query(f"count by (version) ({f.BUILD.sample}{FLEET})", "{{version}}"),),
        stacked=True,
    ),
)


def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards by the name of their file."""
    job = _variable("job", "Job", f"label_values({f.BUILD.sample}, job)", many=True)
    instance = _variable("instance", "Node", f'label_values({f.BUILD.sample}{{job=~"$job"}}, instance)', many=False)
    page = {
        "name": "page",
        "label": "Page",
        "type": "textbox",
        "query": "http://localhost:8420",
        "current": {"text": "http://localhost:8420", "value": "http://localhost:8420"},
        "description": "Address of the node's page (exhume serve, or a tunnel to it).",
    }
    to_page = {
        "title": "the page at this time",
        "type": "link",
        "url": PAGE,
        "targetBlank": True,
        "icon": "external link",
    }
    to_fleet = {"title": "fleet", "type": "link", "url": "/d/exhume-fleet", "keepTime": True, "icon": "dashboard"}
    diagnosis = {"title": "the diagnosis of this time", "url": PAGE, "targetBlank": True}
    to_node = {
        "title": "this node",
        "url": "/d/exhume-node?var-instance=${__field.labels.instance}&from=${__from}&to=${__to}",
    }
    return {
        "exhume-node.json": _dashboard(
            "exhume-node",
            "exhume: node",
            NODE_PANELS,
            variables=[job, instance, page],
            links=[to_page, to_fleet],
            data_link=diagnosis,
        ),
        "exhume-fleet.json": _dashboard(
            "exhume-fleet", "exhume: fleet", FLEET_PANELS, variables=[job], links=[], data_link=to_node
        ),
    }


def _variable(name: str, label: str, query: str, *, many: bool) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": many,
        "includeAll": many,
        "current": {"text": "All", "value": "$__all"} if many else {},
        "sort": 1,
    }


def _dashboard(
    uid: str,
    title: str,
    panels: tuple[Panel, ...],
    *,
    variables: list[dict[str, Any]],
    links: list[dict[str, Any]],
    data_link: dict[str, Any],
) -> dict[str, Any]:
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}
    built: list[dict[str, Any]] = []
    x = y = row_height = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > 24:
            x, y, row_height = 0, y + row_height, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        built.append(_panel(number, panel, place, data_link))
        x, row_height = x + panel.width, max(row_height, panel.height)
    return {
        "uid": uid,
        "title": title,
        "tags": ["exhume"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": links,
        "templating": {"list": [source, *variables]},
        "panels": built,
    }


def _panel(number: int, panel: Panel, place: dict[str, int], data_link: dict[str, Any]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    colours = ("orange", "red") if len(panel.thresholds) > 1 else ("red",)
    steps += [{"color": colour, "value": value} for colour, value in zip(colours, panel.thresholds, strict=False)]
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
        "links": [data_link] if panel.kind != "stat" else [],
    }
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "fillOpacity": 30 if panel.stacked else 5,
            "stacking": {"mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "line" if panel.thresholds else "off"},
        }
    legend = {
        "displayMode": "table" if panel.legend_table else "list",
        "placement": "bottom",
        "calcs": ["max"] if panel.legend_table else [],
    }
    options: dict[str, dict[str, Any]] = {
        "timeseries": {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}},
        "bargauge": {"orientation": "horizontal", "displayMode": "basic", "reduceOptions": {"calcs": ["lastNotNull"]}},
        "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"},
    }
    return {
        "id": number,
        "title": panel.title,
        "description": panel.text,
        "type": panel.kind,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "instant": query.instant,
                "range": not query.instant,
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options[panel.kind],
    }


def text_of(dashboard: dict[str, Any]) -> str:
    return json.dumps(dashboard, indent=2) + "\n"


def main(argv: list[str]) -> int:
    stale = []
    for name, dashboard in dashboards().items():
        file, text = TARGET / name, text_of(dashboard)
        if "--check" in argv:
            if not file.exists() or file.read_text() != text:
                stale.append(str(file.relative_to(TARGET.parents[1])))
        else:
            TARGET.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    if stale:
        print(f"stale: {', '.join(stale)}; run tools/grafana_dashboards.py", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
