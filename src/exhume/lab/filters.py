"""Packet filter rules for the lab's own network namespaces."""

import shutil

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
