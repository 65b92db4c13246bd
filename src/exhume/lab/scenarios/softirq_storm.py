"""Packets go round between two network namespaces until their time to live is up, all in softirqs of one core.

A routing loop: each namespace believes that the other one knows the way. One packet sent is worth 64 received. The
core is the sender's own, or one that the packets are steered to from another."""

from exhume.lab.network import Namespace, join, new_namespace
from exhume.lab.stage import Stage

SUMMARY = "a routing loop between two network namespaces keeps one core in network softirqs"
SUBNET = "10.213.7"
LOST = "10.213.99.1"


def play(stage: Stage) -> None:
    one, other = new_namespace(stage), new_namespace(stage)
    join(one, other, SUBNET)
    _lead_astray(one, "left", 2)
    _lead_astray(other, "right", 1)
    core = stage.core
    elsewhere = [each for each in stage.cores if each != core]
    if elsewhere and stage.rng.random() < 0.5:
        one.receive_on("left", core)
        other.receive_on("right", core)
        core = stage.rng.choice(elsewhere)
    # 32 packets each half millisecond are four million hops a second: more than a core can do.
    stage.start("send_packets", str(stage.seconds), one.path, LOST, "1", "64", "32", "500", core=core)
    stage.wait()


def _lead_astray(namespace: Namespace, device: str, host: int) -> None:
    namespace.set("net.ipv4.ip_forward", "1")
    for where in ("all", device):
        namespace.set(f"net.ipv4.conf.{where}.rp_filter", "0")
        namespace.set(f"net.ipv4.conf.{where}.send_redirects", "0")
        # The first hop back is to where the packet came from, with that namespace's own address as its source.
        namespace.set(f"net.ipv4.conf.{where}.accept_local", "1")
    namespace.run("ip", "route", "add", f"{LOST}/32", "via", f"{SUBNET}.{host}", "dev", device)
