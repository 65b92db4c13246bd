"""/proc/PID/status (fs/proc/array.c, proc_pid_status): a name, a colon and values on each line."""


def status_values(content: bytes, name: bytes) -> list[int]:
    """The numbers of one line, such as the four of `Uid` or the one of `VmHWM`; empty without that line.

    The name of the process comes first and is escaped, so it cannot be mistaken for another line.
    """
    line = content.partition(b"\n" + name + b":")[2].partition(b"\n")[0]
    return [int(value) for value in line.split() if value.isdigit()]


def status_mask(content: bytes, name: bytes) -> int | None:
    """A hexadecimal mask, such as `CapEff`; None without that line."""
    line = content.partition(b"\n" + name + b":")[2].partition(b"\n")[0].strip()
    try:
        return int(line, 16)
    except ValueError:
        return None


def status_text(content: bytes, name: bytes) -> str | None:
    """The text of one line, such as the list of `Cpus_allowed_list`; None without that line."""
    line = content.partition(b"\n" + name + b":")[2].partition(b"\n")[0].strip()
    return line.decode("ascii", "replace") or None
