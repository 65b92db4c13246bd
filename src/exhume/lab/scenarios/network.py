"""Network scenarios: conntrack, packet filter rules, network namespaces, softirqs. Each runs in its own namespaces."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from exhume.lab.stage import PEER, Scenario, Stage, wait_until
from exhume.model.errors import LabError

_HOLD_S = 300


@dataclass(frozen=True, slots=True)
class Namespace:
    """A network namespace, identified by the process that holds it."""

    pid: int

    @property
    def path(self) -> str:
        return f"/proc/{self.pid}/ns/net"

    def run(self, *args: str, input: str | None = None) -> None:
        """Run a command in the namespace; `input` is its standard input."""
        done = subprocess.run(
            ["nsenter", f"--net={self.path}", *args], check=False, capture_output=True, text=True, input=input
        )
        if done.returncode:
            raise LabError(f"{' '.join(args)} failed in the lab's network namespace: {done.stderr.strip()}")

    def set(self, setting: str, value: int) -> None:
        """Set a sysctl of the namespace, for example net.ipv4.ip_forward."""
        self.run("sh", "-c", f"echo {value} > /proc/sys/{setting.replace('.', '/')}")

    def receive_on(self, device: str, core: int) -> None:
        """Let one core handle the packets that arrive on a device."""
        # sysfs shows the devices of the namespace in which it was mounted, so mount it again for this command.
        file = f"/sys/class/net/{device}/queues/rx-0/rps_cpus"
        self.run("unshare", "--mount", "sh", "-c", f"mount -t sysfs sysfs /sys && echo {core_mask(core)} > {file}")


def core_mask(core: int) -> str:
    """The mask of one core in the kernel's format: groups of eight hex digits."""
    return ",".join([f"{1 << core % 32:08x}", *["0" * 8] * (core // 32)])


def new_namespace(stage: Stage) -> Namespace:
    """Create a network namespace with its loopback device up."""
    for tool in ("ip", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            raise LabError(f"{tool} is not on this machine: install iproute2 and util-linux")
    holder = stage.start("network.hold_namespace", stage.seconds + _HOLD_S, name="keeper")
    mine = Path("/proc/self/ns/net").stat().st_ino
    namespace = Namespace(holder.pid)

    def made() -> bool:
        if holder.poll() is not None:
            raise LabError("a network namespace can't be made here: run as root, on a kernel with CONFIG_NET_NS")
        return Path(namespace.path).stat().st_ino != mine

    wait_until("a network namespace is made", made)
    namespace.run("ip", "link", "set", "lo", "up")
    return namespace


def restore_command() -> str:
    """The command that replaces all rules."""
    command = shutil.which("iptables-restore")
    if command is None:
        raise LabError("iptables-restore is not on this machine: install iptables")
    return command


# Each takes some 100 KiB of kernel memory.
MOST_WAITING = 1_500


@Scenario(
    "a program makes and drops network namespaces; the worker that takes them down holds a core", memory=400 << 20
)
def netns_cleanup(stage: Stage) -> None:
    stage.run("network.churn_namespaces", MOST_WAITING, stage.rng.choice(("self", "children")), core=stage.core)


SUBNET = "10.213.7"
LOST = "10.213.99.1"


@Scenario("a routing loop between two network namespaces keeps one core in network softirqs", on_core=True)
def softirq_storm(stage: Stage) -> None:
    one, other = new_namespace(stage), new_namespace(stage)
    # A pair of veth devices between them; each side sends undeliverable packets back to the other.
    one.run("ip", "link", "add", "left", "type", "veth", "peer", "name", "right")
    one.run("ip", "link", "set", "right", "netns", str(other.pid))
    ends = ((one, "left", 1, 2), (other, "right", 2, 1))
    for namespace, device, host, _ in ends:
        namespace.run("ip", "addr", "add", f"{SUBNET}.{host}/24", "dev", device)
        namespace.run("ip", "link", "set", device, "up")
    for namespace, device, _, peer in ends:
        namespace.set("net.ipv4.ip_forward", 1)
        for where in ("all", device):
            namespace.set(f"net.ipv4.conf.{where}.rp_filter", 0)
            namespace.set(f"net.ipv4.conf.{where}.send_redirects", 0)
            # The first hop back goes to where the packet came from, with an address of that namespace as its source.
            namespace.set(f"net.ipv4.conf.{where}.accept_local", 1)
        namespace.run("ip", "route", "add", f"{LOST}/32", "via", f"{SUBNET}.{peer}", "dev", device)
    core = stage.core
    elsewhere = [each for each in stage.cores if each != core]
    if elsewhere and stage.rng.random() < 0.5:
        one.receive_on("left", core)
        other.receive_on("right", core)
        core = stage.rng.choice(elsewhere)
    # 32 packets every half millisecond are four million hops per second: more than a core can handle.
    stage.run("network.send_packets", one.path, LOST, 1, 64, 32, 500, core=core)


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


@Scenario(
    "address translation searches for ports that it ran out of, or a program lists all tracked connections",
    on_core=True,
    memory=160 << 20,
)
def conntrack_pressure(stage: Stage) -> None:
    namespace = new_namespace(stage)
    if TABLE.exists() and stage.rng.random() < 0.5:
        list_all(stage, namespace)
    else:
        namespace.run(restore_command(), input=FILTER + FEW_PORTS)
        # One destination, each time from another source port: connections that differ only in their translated port.
        stage.run("network.send_packets", namespace.path, "127.8.0.1", 1, 1, 1, 0, core=stage.core)


def list_all(stage: Stage, namespace: Namespace) -> None:
    namespace.run(restore_command(), input=FILTER)
    args = (FILLING_S, namespace.path, "127.8.0.1", 8, 2000, 500, 3500)
    stage.start("network.send_packets", *args, name=f"{stage.name}{PEER}")
    stage.run("network.read_in_namespace", namespace.path, TABLE, core=stage.core)


RULES = 8_000


def long_list(count: int) -> str:
    """A table whose output chain has this many rules, none of which ever matches."""
    rules = [f"-A OUTPUT -d 10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}/32 -p tcp -j ACCEPT" for i in range(count)]
    head = ["*filter", ":INPUT DROP [0:0]", ":FORWARD ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]"]
    return "\n".join([*head, *rules, "COMMIT", ""])


@Scenario(
    "every packet of a program walks thousands of packet filter rules, which another replaces all the time",
    on_core=True,
)
def iptables_churn(stage: Stage) -> None:
    namespace = new_namespace(stage)
    rules = stage.directory / "rules"
    rules.write_text(long_list(RULES))
    command = restore_command()
    namespace.run(command, input=rules.read_text())
    sync = (stage.seconds, namespace.path, rules, 1, command)
    stage.start("network.rewrite_rules", *sync, name=f"{stage.name}-sync")
    stage.run("network.send_packets", namespace.path, "127.9.0.1", 1, 64, 32, 0, core=stage.core)
