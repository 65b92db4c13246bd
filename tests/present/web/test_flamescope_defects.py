"""Each known defect of the page that people used before has its test here."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.diagnose.scenes import Scene, at
from tests.present.web.wire import counts

from exhume.model.clock import MILLIS
from exhume.present.web.app import create_app
from exhume.present.web.guard import Rules

KERNEL = ["entry_SYSCALL_64", "vfs_read"]


def opened(scene: Scene, directory: Path) -> TestClient:
    scene.write(directory / "r")
    return TestClient(create_app(directory / "r", Rules(), directory), base_url="http://localhost")


def ms(second: float) -> int:
    return at(second) // MILLIS


def test_a_sample_out_of_order_breaks_nothing(tmp_path):
    scene = Scene(cores=1, seconds=4).stack(0, 0, 4, 0.1, "app", 7, KERNEL)
    # Written last, taken first.
    scene.row("samples", 0.0, cpu=0, pid=7, tid=7, comm="app", stack=next(iter(scene._stacks.values())), weight_us=1)
    scene._rows[3]["samples"].append(scene._rows[0]["samples"].pop())
    with opened(scene, tmp_path) as client:
        _, found = counts(client.get("/api/subsecond?rows=10"))
        assert found[0, 0] >= 2
        assert found.sum() == client.get("/api/flame").json()["samples"]


def test_a_name_keeps_its_digits(tmp_path):
    with opened(Scene(cores=1, seconds=2).stack(0, 0, 2, 0.5, "python3.12-x64", 7, KERNEL), tmp_path) as client:
        assert client.get("/api/processes").json()["processes"][0]["comm"] == "python3.12-x64"
        assert "python3.12-x64" in client.get("/api/export/folded").text


def test_process_thread_and_core_are_kept(tmp_path):
    scene = Scene(cores=3, seconds=2)
    for core in range(3):
        scene.stack(core, 0, 2, 0.5, "app", 70 + core, KERNEL)
    with opened(scene, tmp_path) as client:
        body = client.get("/api/processes").json()["processes"]
        assert {(each["pid"], each["per_cpu"][0][0]) for each in body} == {(70, 0), (71, 1), (72, 2)}


def test_samples_weigh_the_time_that_they_stand_for(tmp_path):
    scene = Scene(cores=1, seconds=2).stack(0, 0, 2, 0.5, "often", 7, KERNEL)
    scene.row(
        "samples", 1.5, cpu=0, pid=8, tid=8, comm="rare", stack=next(iter(scene._stacks.values())), weight_us=9_000_000
    )
    with opened(scene, tmp_path) as client:
        assert client.get("/api/processes").json()["processes"][0]["comm"] == "rare"


def test_neighbours_count_nothing_twice(tmp_path):
    with opened(Scene(cores=2, seconds=10).stack(1, 0, 10, 0.7, "app", 7, KERNEL), tmp_path) as client:

        def samples(since: float, until: float) -> int:
            return client.get(f"/api/flame?since={ms(since)}&until={ms(until)}").json()["samples"]

        assert samples(0, 5) + samples(5, 10) == samples(0, 10)
        assert sum(samples(0.5 * i, 0.5 * i + 0.5) for i in range(20)) == samples(0, 10)


def test_an_empty_range_and_one_past_the_end_are_no_errors(tmp_path):
    with opened(Scene(cores=1, seconds=4).stack(0, 0, 4, 0.5, "app", 7, KERNEL), tmp_path) as client:
        assert client.get(f"/api/flame?since={ms(2)}&until={ms(2)}").json()["samples"] == 0
        far = client.get(f"/api/flame?since={ms(2)}&until={ms(4000)}")
        assert far.status_code == 200
        assert far.json()["until"] == ms(4)


def test_a_difference_covers_every_frame_of_either_side(tmp_path):
    scene = Scene(cores=1, seconds=20).stack(0, 0, 10, 0.5, "app", 7, ["a", "before_only"])
    scene.stack(0, 10, 20, 0.5, "app", 7, ["a", "now_only"])
    with opened(scene, tmp_path) as client:
        body = client.get(f"/api/flame?since={ms(10)}&until={ms(20)}&baseline=before&least=0").json()
        sides = {
            body["labels"]["name"][label]: (now > 0, before > 0)
            for label, now, before in zip(body["label"], body["weight"], body["base_weight"], strict=True)
        }
        assert sides["before_only"] == (False, True)
        assert sides["now_only"] == (True, False)
        assert sides["a"] == (True, True)


@pytest.mark.parametrize(
    "path",
    ["/../secret/x", "/assets/../../secret/x", "/%2e%2e/secret/x", "/..%2fsecret/x", "//etc/passwd", "/assets/%00"],
)
def test_no_path_leads_out_of_the_page(tmp_path, path):
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "index.html").write_text("the page")
    # Its name begins like the page's directory, which a check by prefix would let pass.
    (tmp_path / "static-secret").mkdir()
    (tmp_path / "static-secret" / "x").write_text("a secret")
    Scene(cores=1, seconds=2).write(tmp_path / "r")
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path / "static"), base_url="http://localhost") as client:
        for each in (path, path.replace("secret", "static-secret")):
            answer = client.get(each)
            assert "secret" not in answer.text
            assert answer.status_code == 404


def test_interrupt_work_on_an_idle_core_is_shown(tmp_path):
    scene = Scene(cores=1, seconds=4)
    scene.stack(
        0, 0, 4, 0.3, "swapper/0", 0, ["cpu_startup_entry", "asm_common_interrupt", "__do_softirq", "net_rx_action"]
    )
    with opened(scene, tmp_path) as client:
        body = client.get("/api/flame").json()
        assert "net_rx_action" in body["labels"]["name"]
        assert body["states"][body["state"][-1]] == "softirq"


def test_times_are_those_of_the_wall_clock(tmp_path):
    with opened(Scene(cores=1, seconds=4), tmp_path) as client:
        assert client.get("/api/recording").json()["since"] == ms(0)
