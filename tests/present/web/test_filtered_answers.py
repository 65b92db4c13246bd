"""What filters leave of a recording whose every sample and event is known."""

import json

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.diagnose.scenes import Scene
from tests.present.web.wire import heat

from exhume.present.web.app import create_app
from exhume.present.web.guard import Rules
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.handlers import processes as ranking
from exhume.present.web.params import ProcessesParams


def test_a_measure_of_what_a_filter_leaves(tmp_path):
    scene = Scene(cores=1, seconds=10)
    # Of app's half second: 0.2 in a program, 0.2 in a system call, 0.1 interrupted; another process fills the rest.
    scene.stack(0, 0, 10, 0.2, "app", 7, ["app:work"])
    scene.stack(0, 0, 10, 0.2, "app", 7, ["entry_SYSCALL_64", "vfs_read"])
    scene.stack(0, 0, 10, 0.1, "app", 7, ["asm_common_interrupt", "__do_softirq", "net_rx_action"])
    scene.stack(0, 0, 10, 0.4, "other", 8, ["entry_SYSCALL_64", "vfs_read"])
    scene.write(tmp_path / "r")
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as client:
        for measure, part in (("busy", 0.5), ("user", 0.2), ("system", 0.2), ("softirq", 0.1)):
            for cells in (5, 20):
                header, values, _ = heat(client.get(f"/api/cores?cells={cells}&comm=app&measure={measure}"))
                assert header["measure"] == ("matching" if measure == "busy" else measure)
                assert np.median(values[values != header["unrecorded"]]) / 1000 == pytest.approx(part, abs=0.03)
        refused = client.get("/api/cores?comm=app&measure=steal")
        assert refused.status_code == 422
        assert "busy, user, system, softirq, not steal" in refused.json()["detail"]


def test_filters_act_on_events_that_name_a_process(tmp_path):
    scene = Scene(cores=4, seconds=20)
    scene.event(3, "oom", "Out of memory: Killed process 7 (app)", comm="app", pid=7)
    scene.event(4, "soft-lockup", "CPU#2 stuck", cpu=2, comm="kubelet", pid=9)
    scene.event(5, "nic-reset", "eth0: reset")
    scene.write(tmp_path / "r")
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as client:

        def kinds_of(query: str) -> list[str]:
            answer = client.get(f"/api/events?{query}").json()
            kinds = [event["kind"] for event in answer["events"]]
            marks = client.get(f"/api/marks?{query}").json()["marks"]
            assert [mark["kind"] for mark in marks] == kinds
            assert answer["elsewhere"] == 3 - len(kinds)
            return kinds

        assert kinds_of("") == ["oom", "soft-lockup", "nic-reset"]
        assert kinds_of("comm=app") == ["oom", "nic-reset"]
        assert kinds_of("pid=9") == ["soft-lockup", "nic-reset"]
        assert kinds_of("cpus=0,1") == ["oom", "nic-reset"]
        assert kinds_of("cpus=0-60000") == ["oom", "soft-lockup", "nic-reset"]


def test_a_container_name_recorded_before_the_window_is_used(tmp_path):
    scene = Scene(cores=1, seconds=20)
    first, second = "ab12" * 16, "cd34" * 16
    scene.event(1, "container-seen", "noisy runs", container=first, container_name="noisy-agent")
    scene.event(1, "container-seen", "quiet runs", container=second, container_name="quiet")
    scene.event(12, "container-oom", "noisy ran out of memory", container=first)
    for pid, comm, share, container in ((7, "app", 0.5, first), (8, "other", 0.2, second), (9, "host", 0.1, None)):
        scene.stack(0, 0, 20, share, comm, pid, [f"{comm}:work"])
        scene.row("processes", 0, pid=pid, comm=comm, container=container)
    span = scene.write(tmp_path / "r").span()
    assert span is not None
    later = f"since={span.since // 10**6 + 10_000}"
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as client:

        def ran(query: str) -> list[tuple[str, str | None]]:
            found = client.get(f"/api/processes?{later}&{query}").json()["processes"]
            return [(each["comm"], each["container_name"]) for each in found]

        assert ran("") == [("app", "noisy-agent"), ("other", "quiet"), ("host", None)]
        # The start of a name as well as the start of an id; what starts like neither matches nothing.
        assert ran("container=noisy") == ran(f"container={first[:6]}") == [("app", "noisy-agent")]
        assert ran("container=agent") == []
        header, values, _ = heat(client.get(f"/api/cores?{later}&cells=5&container=noisy"))
        assert np.median(values[values != header["unrecorded"]]) / 1000 == pytest.approx(0.5, abs=0.03)
        for query in ("container=noisy", f"container={first[:6]}"):
            kinds = [event["kind"] for event in client.get(f"/api/events?{later}&{query}").json()["events"]]
            assert kinds == ["container-oom"]
        assert client.get(f"/api/events?{later}&container=quiet").json()["events"] == []


def test_a_pod_goes_by_its_name_and_its_id(tmp_path):
    scene = Scene(cores=1, seconds=10)
    first, second, uid = "ab12" * 16, "cd34" * 16, "0f1e2d3c-0000-4000-8000-0123456789ab"
    for pid, comm, share in ((7, "app", 0.5), (8, "worker", 0.2), (9, "pause", 0.1), (10, "host", 0.05)):
        scene.stack(0, 0, 10, share, comm, pid, [f"{comm}:work"])
    names = {"pod_name": "shop/cart-0", "container_name": "shop/cart-0/web"}
    scene.row("processes", 0, pid=7, comm="app", container=first, pod=uid, **names)
    # Recorded before the link to its log was there.
    scene.row("processes", 0, pid=8, comm="worker", container=first, pod=uid)
    scene.row("processes", 0, pid=9, comm="pause", container=second, pod=uid, pod_name="shop/cart-0")
    scene.row("processes", 0, pid=10, comm="host")
    known = {"pod": uid, "pod_name": "shop/cart-0"}
    scene.event(1, "pod-owner", "belongs", "info", source="kubernetes", owner="cartservice.example.dev/cart", **known)
    scene.event(2, "container-start", "", "info", source="cri", owner="statefulset/cart", container=first, **known)
    scene.write(tmp_path / "r")
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as client:

        def ran(query: str) -> list[tuple[str, str | None, str | None]]:
            found = client.get(f"/api/processes?{query}").json()["processes"]
            return [(each["comm"], each["container_name"], each["pod_name"]) for each in found]

        web = [("app", "shop/cart-0/web", "shop/cart-0"), ("worker", "shop/cart-0/web", "shop/cart-0")]
        whole = [*web, ("pause", None, "shop/cart-0")]
        assert ran("") == [*whole, ("host", None, None)]
        assert ran("by=container") == [
            ("shop/cart-0/web", "shop/cart-0/web", "shop/cart-0"),
            (f"shop/cart-0/{second[:12]}", None, "shop/cart-0"),
            ("not in a container", None, None),
        ]
        assert ran("by=pod") == [("shop/cart-0", None, "shop/cart-0"), ("not in a pod", None, None)]
        counts = [each["processes"] for each in client.get("/api/processes?by=pod").json()["processes"]]
        assert counts == [3, 1]
        for query in ("pod=shop/cart-0", "pod=cart", f"pod={uid}", f"pod={uid[:8]}"):
            assert ran(query) == whole, query
        for query in ("container=shop/cart-0/web", f"container={first[:12]}"):
            assert ran(query) == web, query
        assert ran("pod=cart-00") == ran("pod=web") == []
        owned = [(each["pid"], each["owner"]) for each in client.get("/api/processes").json()["processes"]]
        # Which the API says, not the labels of a container.
        assert owned == [(pid, "cartservice.example.dev/cart") for pid in (7, 8, 9)] + [(10, None)]
        svg = client.get("/api/export/svg?pod=shop/cart-0").text
        assert "pod shop/cart-0" in svg and "app" in svg and "host" not in svg


@pytest.mark.slow
def test_ranks_are_the_same_however_often_they_are_folded(written, monkeypatch):
    bodies = []
    for rows in (1, 1_000_000):
        monkeypatch.setattr(ranking, "_FOLD_ROWS", rows)
        reply = ranking.processes(RecordingHandle(written[0]), ProcessesParams(limit=1000))
        body = json.loads(reply.body)
        assert sum(each["seconds"] for each in body["processes"]) == pytest.approx(body["total_seconds"], abs=1)
        bodies.append({(each["comm"], each["pid"]): each["seconds"] for each in body["processes"]})
    assert bodies[0] == bodies[1]
