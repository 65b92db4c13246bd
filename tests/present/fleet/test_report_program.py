"""A report as the page shows it."""

import json
import math
from types import SimpleNamespace as Made

from exhume.model.clock import MILLIS, Window
from exhume.present.fleet.report_program import MAX_AT_RISK, main, shape_of

HOUR = 3_600_000 * MILLIS


def separator(ratio: float, high: float) -> Made:
    return Made(
        conditions=(Made(key="zone", value="b"), Made(key="image", value="x")),
        cause="zombie-memcgs",
        nodes=100,
        sick=90,
        risk_ratio=Made(value=ratio, low=3.0, high=high),
        q=1e-9,
        coverage=0.9,
        same_nodes=((Made(key="rack", value="7"),),),
        explained=False,
    )


def made_up(**others: object) -> Made:
    given = {
        "window": Window(HOUR, 25 * HOUR),
        "nodes": 1000,
        "sick": 100,
        "tried": 321,
        "separators": (separator(9.0, 11.5), separator(math.inf, math.inf)),
        "common": Made(
            cause="zombie-memcgs", nodes=90, incidents=200, leaker="agent", culprit="kubelet", function="walk"
        ),
        "hazard": Made(from_days=6.04, to_days=8.0),
        "onset": Made(at=2 * HOUR),
        "changes": (Made(to=Made(key="image", value="x"), before="w", sick=50, of_sick=90),),
        "at_risk": tuple(Made(node=f"n{i}", at=i * HOUR) for i in range(MAX_AT_RISK + 5)),
        "clusters": (Made(key="label.rack", clusters=40, sick=("r7", "r9"), coverage=0.8),),
        "jobs": Made(
            failed=212,
            explained=180,
            within_s=60,
            share=Made(value=0.85, low=0.79, high=0.89),
            expected=12.34,
            p=1e-9,
        ),
        "steps": (Made(text="stop it", command="exhume fix plan", total=90),),
        "blind_spots": ("one file",),
    }
    return Made(**{**given, **others})


def test_all_of_a_report_is_there():
    shape = shape_of(made_up())
    assert (shape["state"], shape["since"], shape["until"]) == ("ready", 3_600_000, 25 * 3_600_000)
    first, unbounded = shape["separators"]
    assert first["conditions"] == [{"key": "zone", "value": "b"}, {"key": "image", "value": "x"}]
    assert (first["risk_ratio"], first["low"], first["high"], first["same_nodes"]) == (9.0, 3.0, 11.5, 1)
    # Where no other node is sick there is no ratio; JSON has no infinity.
    assert (unbounded["risk_ratio"], unbounded["high"]) == (None, None)
    json.dumps(shape, allow_nan=False)
    assert shape["uptime_days"] == (6.0, 8.0)
    assert (len(shape["at_risk"]), shape["at_risk_total"]) == (MAX_AT_RISK, MAX_AT_RISK + 5)
    assert shape["clusters"] == [{"key": "label.rack", "values": 40, "sick": ["r7", "r9"], "coverage": 0.8}]
    jobs = shape["jobs"]
    assert jobs is not None and (jobs["failed"], jobs["explained"], jobs["expected"]) == (212, 180, 12.3)
    assert (jobs["share"], jobs["low"], jobs["high"]) == (0.85, 0.79, 0.89)
    assert shape["changes"] == [{"key": "image", "before": "w", "value": "x", "sick": 50, "of_sick": 90}]


def test_a_healthy_fleet_has_no_separators():
    nothing = {"separators": (), "common": None, "hazard": None, "onset": None, "changes": (), "at_risk": ()}
    shape = shape_of(made_up(**nothing, clusters=(), jobs=None, sick=0))
    assert (shape["common"], shape["uptime_days"], shape["onset"], shape["separators"]) == (None, None, None, [])
    assert (shape["clusters"], shape["jobs"]) == ([], None)


def test_an_empty_lake_has_no_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("os.nice", lambda step: step)
    assert main([str(tmp_path)]) == 2
    assert "no summaries" in capsys.readouterr().err
