"""Network scenarios: conntrack, packet filter rules, network namespaces, softirqs."""

from pathlib import Path

from exhume.lab.network import Namespace, join, long_list, new_namespace, restore_command
from exhume.lab.stage import Scenario, Stage

# The packets need not arrive: it is enough that they are tracked on their way out.
FILTER = """*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A OUTPUT -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT
COMMIT
"""
FEW_PORTS = """*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -p udp -j SNAT --to-source 127.0.0.1:30000-30127
COMMIT
"""
TABLE = Path("/proc/self/net/nf_conntrack")
FILLING_S = 3.0


def conntrack_pressure(stage: Stage) -> None:
    namespace = new_namespace(stage)
    if TABLE.exists() and stage.rng.random() < 0.5:
        list_all(stage, namespace)
    else:
        run_out_of_ports(stage, namespace)


def run_out_of_ports(stage: Stage, namespace: Namespace) -> None:
    namespace.run(restore_command(), input=FILTER + FEW_PORTS)
    # One destination, from another port of its own each time: connections that differ only in their translated port.
    args = ("127.8.0.1", "1", "1", "1", "0")
    stage.start("network.send_packets", str(stage.seconds), namespace.path, *args, core=stage.core)
    stage.wait()


def list_all(stage: Stage, namespace: Namespace) -> None:
    namespace.run(restore_command(), input=FILTER)
    args = ("127.8.0.1", "8", "2000", "500", "2000")
    stage.start("network.send_packets", str(FILLING_S), namespace.path, *args, name=f"{stage.name}-peer")
    stage.start("network.read_in_namespace", str(stage.seconds), namespace.path, str(TABLE), core=stage.core)
    stage.wait()


RULES = 8_000


def iptables_churn(stage: Stage) -> None:
    namespace = new_namespace(stage)
    rules = stage.directory / "rules"
    rules.write_text(long_list(RULES))
    command = restore_command()
    namespace.run(command, input=rules.read_text())
    seconds = str(stage.seconds)
    stage.start("network.rewrite_rules", seconds, namespace.path, str(rules), "1", command, name=f"{stage.name}-sync")
    stage.start("network.send_packets", seconds, namespace.path, "127.9.0.1", "1", "64", "32", "0", core=stage.core)
    stage.wait()


# Some 100 KiB of kernel memory each.
MOST_WAITING = 1_500


def netns_cleanup(stage: Stage) -> None:
    who = stage.rng.choice(("self", "children"))
    stage.start("network.churn_namespaces", str(stage.seconds), str(MOST_WAITING), who, core=stage.core)
    stage.wait()


SUBNET = "10.213.7"
LOST = "10.213.99.1"


def softirq_storm(stage: Stage) -> None:
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
    stage.start("network.send_packets", str(stage.seconds), one.path, LOST, "1", "64", "32", "500", core=core)
    stage.wait()


def _lead_astray(namespace: Namespace, device: str, host: int) -> None:
    namespace.set("net.ipv4.ip_forward", "1")
    for where in ("all", device):
        namespace.set(f"net.ipv4.conf.{where}.rp_filter", "0")
        namespace.set(f"net.ipv4.conf.{where}.send_redirects", "0")
        # The first hop back is to where the packet came from, with that namespace's own address as its source.
        namespace.set(f"net.ipv4.conf.{where}.accept_local", "1")
    namespace.run("ip", "route", "add", f"{LOST}/32", "via", f"{SUBNET}.{host}", "dev", device)


SCENARIOS = (
    Scenario(
        "netns-cleanup",
        "netns-cleanup",
        "a program makes and drops network namespaces; the worker that takes them down holds a core",
        netns_cleanup,
        memory=400 << 20,
    ),
    Scenario(
        "softirq-storm",
        "softirq-storm",
        "a routing loop between two network namespaces keeps one core in network softirqs",
        softirq_storm,
        on_core=True,
    ),
    Scenario(
        "conntrack-pressure",
        "conntrack-pressure",
        "address translation searches for ports that it ran out of, or a program lists all tracked connections",
        conntrack_pressure,
        on_core=True,
        memory=160 << 20,
    ),
    Scenario(
        "iptables-churn",
        "iptables-churn",
        "every packet of a program walks thousands of packet filter rules, which another replaces all the time",
        iptables_churn,
        on_core=True,
    ),
)
