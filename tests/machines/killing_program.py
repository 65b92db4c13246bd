"""A program that runs exhume in children, each of which may kill itself (-9) right before its Nth change to a disk.

It is told what to run in lines of JSON, and says how each run ended. What counts are the changes below the directories
that it is given: files opened to be written, made, renamed and removed, as Python's audit events tell them.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def before_each_change(places: tuple[str, ...], happens: Callable[[], None]) -> None:
    """From now on call this before each change below these places."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        is_change = event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES)
        if is_change and any(_path(each).startswith(places) for each in arguments[:2]):
            happens()

    sys.addaudithook(hook)


def _path(value: Any) -> str:
    return os.fsdecode(value) if isinstance(value, str | bytes | os.PathLike) else ""


def run(order: dict[str, Any]) -> int:
    """Its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    try:
        out = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        left = order["kill_before"]

        def count() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        if left:
            before_each_change(tuple(order["places"]), count)
        sys.argv = ["exhume", *order["words"]]
        exhume()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    from exhume.cli.main import run as exhume

    # Once, not in every child.
    for name in ("fix_acting", "fix_apply", "fix_rollback", "fix_targets"):
        importlib.import_module(f"exhume.cli.{name}")
    for name in ("fixes", "plans", "services.node", "services.plan", "zombies.apply"):
        importlib.import_module(f"exhume.remedy.{name}")
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
