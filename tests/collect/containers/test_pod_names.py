"""Names of pods and containers from the directories that kubelet keeps, on fake nodes."""

import os
from pathlib import Path

import pytest
from tests.collect.fake_node import FakeNode

from exhume.collect.containers import names as pod_names
from exhume.collect.containers.names import PodName, PodNames, container_of_log, has_pods, pod_of_directory

POD, STATIC, ID = "0f1e2d3c-0000-4000-8000-0123456789ab", "5d" * 16, "c0" * 32
UNKNOWN = PodName(None, None)


class Logs:
    """What kubelet puts below /var/log; each change has a time of its own, as where ticks lie between them."""

    def __init__(self, at: Path) -> None:
        self._at = at
        self._changes = 0

    def pod(self, name: str, *, same_time: bool = False) -> None:
        self._put("pods", name, same_time)

    def container(self, name: str) -> None:
        self._put("containers", name, False)

    def _put(self, kind: str, name: str, same_time: bool) -> None:
        (self._at / kind / name).mkdir(parents=True)
        self._changes += not same_time
        os.utime(self._at / kind, ns=(self._changes, self._changes))


@pytest.fixture
def logs(node: FakeNode) -> Logs:
    return Logs(node.host.logs)


def count_lists(monkeypatch) -> list[str]:
    listed: list[str] = []
    real = os.scandir

    def scandir(path: Path) -> "os._ScandirIterator[str]":
        listed.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(pod_names.os, "scandir", scandir)
    return listed


def test_pods_and_their_containers_have_names(node: FakeNode, logs: Logs) -> None:
    logs.pod(f"shop_cart-7d9f.v2-x_{POD}")
    logs.pod(f"kube-system_etcd-node-1_{STATIC}")
    logs.container(f"cart-7d9f.v2-x_shop_side-car-{ID}.log")
    names = PodNames(node.host)
    assert names.of(POD, ID, 1) == PodName("shop/cart-7d9f.v2-x", "shop/cart-7d9f.v2-x/side-car")
    assert names.of(POD, "ab" * 32, 1) == PodName("shop/cart-7d9f.v2-x", None), "what holds a pod together has no log"
    assert names.of(STATIC, None, 1) == PodName("kube-system/etcd-node-1", None)
    assert names.of("00000000-0000-4000-8000-000000000000", None, 1) == UNKNOWN


def test_directories_of_old_kubelets_have_no_names_but_links_do(node: FakeNode, logs: Logs) -> None:
    logs.pod(POD)
    logs.container(f"cart-0_shop_web-{ID}.log")
    assert PodNames(node.host).of(POD, ID, 1) == PodName("shop/cart-0", "shop/cart-0/web")


def test_in_a_container_the_node_is_behind_its_first_process(node: FakeNode) -> None:
    (node.host.proc / f"1/root/var/log/pods/shop_cart-0_{POD}").mkdir(parents=True)
    assert PodNames(node.host).of(POD, ID, 1) == PodName("shop/cart-0", None)


def test_a_node_without_these_directories_has_no_names(node: FakeNode, monkeypatch) -> None:
    listed = count_lists(monkeypatch)
    assert PodNames(node.host).of(POD, ID, 1) == UNKNOWN
    assert listed == []


@pytest.mark.parametrize(
    "name",
    [
        POD,
        f"shop_{POD}",
        f"a_b_c_{POD}",
        f"Shop_cart_{POD}",
        f"shop_cart\n_{POD}",
        f"shop_../../etc_{POD}",
        "shop_cart_not-a-uid",
        f"shop_cart_{POD}x",
    ],
)
def test_what_kubelet_would_not_write_names_nothing(name: str) -> None:
    assert pod_of_directory(name) is None


@pytest.mark.parametrize(
    "name", ["x.log", f"a_b-{ID}.log", f"a_b_c-{ID[1:]}.log", f"a_b_c-{ID}", f"a_b_c_d-{ID}.log", f"_b_c-{ID}.log"]
)
def test_what_is_no_link_of_kubelet_names_nothing(name: str) -> None:
    assert container_of_log(name) is None


def test_a_directory_is_listed_for_new_ids_only_and_once_a_tick(node: FakeNode, logs: Logs, monkeypatch) -> None:
    listed = count_lists(monkeypatch)
    logs.pod(f"shop_cart-0_{POD}")
    names = PodNames(node.host)
    for tick in range(5):
        assert names.of(POD, None, tick).pod == "shop/cart-0"
    assert listed == ["pods"], "what is known is not looked for"
    for number in range(50):
        assert names.of(f"unknown-{number}", None, 5) == UNKNOWN
    assert listed == ["pods"] * 2, "however many turn up in a tick"
    for tick in range(6, 50):
        assert names.of("unknown", None, tick) == UNKNOWN
    assert listed == ["pods"] * 2, "what did not change reports nothing new"
    logs.pod(f"shop_cart-1_{STATIC}")
    assert names.of(STATIC, None, 50).pod == "shop/cart-1"
    assert listed == ["pods"] * 3


def test_what_was_made_in_the_moment_of_the_last_look_is_found_a_tick_later(node: FakeNode, logs: Logs) -> None:
    """The time of a directory goes by the kernel's tick: two changes within one look the same."""
    logs.pod(f"shop_cart-0_{POD}")
    names = PodNames(node.host)
    assert names.of(POD, None, 1).pod == "shop/cart-0"
    logs.pod(f"shop_cart-1_{STATIC}", same_time=True)
    assert names.of(STATIC, None, 2).pod == "shop/cart-1"


def test_a_directory_without_end_is_looked_at_up_to_a_bound(node: FakeNode, logs: Logs, monkeypatch) -> None:
    monkeypatch.setattr(pod_names, "MOST_ENTRIES", 5)
    uids = [f"{number:08x}-0000-4000-8000-0123456789ab" for number in range(20)]
    for number, uid in enumerate(uids):
        logs.pod(f"shop_cart-{number}_{uid}")
    names = PodNames(node.host)
    assert sum(names.of(uid, None, 1).pod is not None for uid in uids) == 5


def test_kubelet_s_directory_is_looked_for_where_there_are_pods(node: FakeNode, monkeypatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    node.proc("self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    node.proc("self/cgroup", "0::/user.slice\n")
    assert not has_pods(node.host) and not PodNames(node.host).readable
    (node.host.sys / "fs/cgroup/kubepods.slice").mkdir(parents=True)
    assert has_pods(node.host)
    (node.host.logs / "pods").mkdir(parents=True)
    assert PodNames(node.host).readable


def test_a_process_in_a_pod_knows_that_there_are_pods(node: FakeNode, monkeypatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    node.proc("self/cgroup", f"4:memory:/kubepods/besteffort/pod{POD}/{ID}\n")
    assert has_pods(node.host)
    # With a cgroup namespace of its own it does not see where it is.
    node.proc("self/cgroup", "0::/\n")
    assert not has_pods(node.host)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert has_pods(node.host)
