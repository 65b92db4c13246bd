"""Kernel modules, and network interfaces with driver, firmware and the cores that serve their queues."""

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

from exhume.collect.inventory.files import NodeFiles, Unreadable, clean
from exhume.collect.sources.interrupts import NicQueues
from exhume.model.inventory import Nic, Reason
from exhume.procfs.host import subdirectories
from exhume.procfs.interrupts import interrupt_name, parse_header, parse_label

_MOST_MODULES, _MOST_NICS, _MOST_QUEUES = 2000, 64, 1024
_MOST_INTERRUPTS = 32 << 20
# linux/sockios.h, linux/ethtool.h: struct ethtool_drvinfo begins with the command and five strings of 32 bytes.
_SIOCETHTOOL, _GDRVINFO = 0x8946, 0x00000003
_DRVINFO_BYTES, _TEXT_BYTES = 196, 32
_IFNAMSIZ = 16


def read_modules(files: NodeFiles) -> dict[str, str]:
    """Module names, with the version if a module has one: modules of the kernel's own tree have none."""
    host = files.root.host
    lines = files.text(host.proc / "modules", 4 << 20).splitlines()
    names = sorted(line.split(" ", 1)[0] for line in lines if line)
    found = {
        name: files.line(host.sys / "module" / name / "version") for name in names[:_MOST_MODULES] if _is_name(name)
    }
    if len(names) > _MOST_MODULES:
        files.note("", Reason.TRUNCATED, f"{len(names):,} modules, of which {_MOST_MODULES:,} are kept")
    return found


def read_nics(files: NodeFiles) -> tuple[Nic, ...]:
    """Interfaces backed by a device; those of containers, bridges and tunnels have none."""
    root = files.root.host.sys / "class/net"
    try:
        names = sorted(os.listdir(root))  # noqa: PTH208  names only
    except PermissionError:
        raise Unreadable(Reason.PERMISSION, f"{root} may not be read") from None
    except OSError:
        raise Unreadable(Reason.ABSENT, f"there is no {root}") from None
    real = [name for name in names if _is_name(name) and (root / name / "device").exists()]
    if len(real) > _MOST_NICS:
        files.note("", Reason.TRUNCATED, f"{len(real):,} interfaces, of which {_MOST_NICS:,} are kept")
    queues = _queue_cores(files, frozenset(real)) if real else {}
    return tuple(_nic(files, root / name, queues.get(name, {})) for name in real[:_MOST_NICS])


def _nic(files: NodeFiles, path: Path, queues: dict[str, str]) -> Nic:
    name = path.name
    try:
        driver = clean((path / "device/driver").resolve(strict=True).name)
    except OSError:
        driver = ""
    # The version of the module, for drivers that report none.
    version = files.line(files.root.host.sys / "module" / driver / "version") if _is_name(driver) else ""
    firmware = ""
    if _is_ours(path):
        try:
            info = driver_info(name)
            driver, version, firmware = info[0] or driver, info[1] or version, info[2]
        except OSError as error:
            files.note(f"{name}.firmware", Reason.FAILED, f"ethtool: {error.strerror or error}")
    else:
        files.note(f"{name}.firmware", Reason.ABSENT, "the interface is in another network namespace")
    kinds = [queue.partition("-")[0] for queue in subdirectories(path / "queues")]
    return Nic(
        name=clean(name),
        driver=driver,
        # Drivers of the kernel's own tree report its release (net/ethtool/ioctl.c, ethtool_get_drvinfo, since 5.10).
        driver_version="" if version == os.uname().release else version,
        firmware=firmware,
        mtu=_number(files.line(path / "mtu")),
        speed_mbit=_speed(path),
        rx_queues=kinds.count("rx"),
        tx_queues=kinds.count("tx"),
        queues=queues,
    )


def driver_info(name: str) -> tuple[str, str, str]:
    """Driver, its version and the firmware of an interface in this network namespace, from ETHTOOL_GDRVINFO, which
    needs no privileges. Raises OSError."""
    answer = ctypes.create_string_buffer(struct.pack("=I", _GDRVINFO), _DRVINFO_BYTES)
    request = struct.pack(f"{_IFNAMSIZ}sP16x", name.encode()[: _IFNAMSIZ - 1], ctypes.addressof(answer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        fcntl.ioctl(channel.fileno(), _SIOCETHTOOL, request)
    driver, version, firmware = (
        answer.raw[at : at + _TEXT_BYTES].partition(b"\0")[0].decode("utf-8", "replace").strip()
        for at in range(4, 4 + 3 * _TEXT_BYTES, _TEXT_BYTES)
    )
    # Some drivers use a placeholder for an empty value.
    return clean(driver), clean(version), "" if firmware in ("N/A", "n/a") else clean(firmware)


def _is_ours(path: Path) -> bool:
    """Whether an interface is in the network namespace of this process: there is one sysfs filesystem per namespace."""
    try:
        return (Path("/sys/class/net") / path.name).stat().st_dev == path.stat().st_dev
    except OSError:
        return False


def _queue_cores(files: NodeFiles, wanted: frozenset[str]) -> dict[str, dict[str, str]]:
    """The cores of each queue's interrupt, by interface and queue."""
    host = files.root.host
    try:
        content = files.read(host.proc / "interrupts", _MOST_INTERRUPTS)
    except Unreadable as error:
        files.note("queues", error.reason, error.detail)
        return {}
    known, width = NicQueues(host), len(parse_header(content))
    found: dict[str, dict[str, str]] = {}
    for row in content.split(b"\n")[1:]:
        irq = parse_label(row)
        if not irq.isdigit():
            continue
        rest = row.split(None, width + 1)[width + 1 :]
        queue = known.find(irq, interrupt_name(rest[0], numbered=True)) if rest else None
        if queue is None or queue.device not in wanted or len(found.get(queue.device, {})) >= _MOST_QUEUES:
            continue
        place = host.proc / "irq" / irq
        # The allowed core that the interrupt is actually routed to, if the kernel reports it (since 4.13).
        cores = files.line(place / "effective_affinity_list") or files.line(place / "smp_affinity_list")
        if cores:
            found.setdefault(queue.device, {}).setdefault(str(queue.queue), cores)
    return found


def _speed(path: Path) -> int | None:
    """None while the link is down, when reading it is refused (net/core/net-sysfs.c, speed_show), or when it is
    unknown."""
    try:
        return _number((path / "speed").read_text().strip())
    except (OSError, ValueError):
        return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _is_name(name: str) -> bool:
    return bool(name) and "/" not in name and name not in (".", "..")
