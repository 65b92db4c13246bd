"""Network namespaces and packet filter rules of the lab's own."""

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from exhume.lab.stage import Stage
from exhume.model.errors import LabError


def restore_command() -> str:
    """The command that replaces rules as a whole."""
    command = shutil.which("iptables-restore")
    if command is None:
        raise LabError("iptables-restore is not on this machine: install iptables")
    return command


def long_list(count: int) -> str:
    """A table whose chain for outgoing packets has so many rules, none of which ever matches."""
    rules = [f"-A OUTPUT -d 10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}/32 -p tcp -j ACCEPT" for i in range(count)]
    head = ["*filter", ":INPUT DROP [0:0]", ":FORWARD ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]"]
    return "\n".join([*head, *rules, "COMMIT", ""])


_PATIENCE_S = 30.0
_HOLD_S = 300


@dataclass(frozen=True, slots=True)
class Namespace:
    """A network namespace, by the process that holds it."""

    pid: int

    @property
    def path(self) -> str:
        return f"/proc/{self.pid}/ns/net"

    def run(self, *args: str, input: str | None = None) -> None:
        """Run a command in it; `input` is what the command reads."""
        done = subprocess.run(
            ["nsenter", f"--net={self.path}", *args], check=False, capture_output=True, text=True, input=input
        )
        if done.returncode:
            raise LabError(f"{' '.join(args)} failed in the lab's network namespace: {done.stderr.strip()}")

    def set(self, setting: str, value: str) -> None:
        """Set a sysctl of the namespace, for example net.ipv4.ip_forward."""
        self.run("sh", "-c", f"echo {value} > /proc/sys/{setting.replace('.', '/')}")

    def receive_on(self, device: str, core: int) -> None:
        """Have the packets that come in by a device handled by one core."""
        mask = f"{1 << core:x}"
        # sysfs shows the devices of the namespace that it was mounted in, so it is mounted again, for this command.
        script = f"mount -t sysfs sysfs /sys && echo {grouped(mask)} > /sys/class/net/{device}/queues/rx-0/rps_cpus"
        self.run("unshare", "--mount", "sh", "-c", script)


def grouped(mask: str) -> str:
    """A mask of cores the way the kernel wants it: groups of eight digits."""
    padded = mask.rjust(-len(mask) // 8 * -8, "0")
    return ",".join(padded[i : i + 8] for i in range(0, len(padded), 8))


def new_namespace(stage: Stage) -> Namespace:
    """Make a network namespace, with its loopback device up."""
    for tool in ("ip", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            raise LabError(f"{tool} is not on this machine: install iproute2 and util-linux")
    holder = stage.start("network.hold_namespace", str(stage.seconds + _HOLD_S), name="keeper")
    mine = Path("/proc/self/ns/net").stat().st_ino
    until = time.monotonic() + _PATIENCE_S
    namespace = Namespace(holder.pid)
    while time.monotonic() < until:
        if holder.poll() is not None:
            raise LabError("a network namespace can't be made here: run as root, on a kernel with CONFIG_NET_NS")
        if Path(namespace.path).stat().st_ino != mine:
            namespace.run("ip", "link", "set", "lo", "up")
            return namespace
        time.sleep(0.01)
    raise LabError(f"no network namespace came about within {_PATIENCE_S:.0f} s")


def join(one: Namespace, other: Namespace, subnet: str) -> None:
    """A pair of veth devices between two namespaces: `left` is .1 of a /24, `right` is .2."""
    one.run("ip", "link", "add", "left", "type", "veth", "peer", "name", "right")
    one.run("ip", "link", "set", "right", "netns", str(other.pid))
    for namespace, device, host in ((one, "left", 1), (other, "right", 2)):
        namespace.run("ip", "addr", "add", f"{subnet}.{host}/24", "dev", device)
        namespace.run("ip", "link", "set", device, "up")
