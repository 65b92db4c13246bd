"""Thousands of packet filter rules in a network namespace: every packet walks them, and they are replaced as one."""

from exhume.lab.filters import long_list, restore_command
from exhume.lab.network import new_namespace
from exhume.lab.stage import Stage

SUMMARY = "every packet of a program walks thousands of packet filter rules, which another replaces all the time"
RULES = 8_000


def play(stage: Stage) -> None:
    namespace = new_namespace(stage)
    rules = stage.directory / "rules"
    rules.write_text(long_list(RULES))
    command = restore_command()
    namespace.run(command, told=rules.read_text())
    seconds = str(stage.seconds)
    stage.start("rewrite_rules", seconds, namespace.path, str(rules), "1", command, name=f"{stage.name}-sync")
    stage.start("send_packets", seconds, namespace.path, "127.9.0.1", "1", "64", "32", "0", core=stage.core)
    stage.wait()
