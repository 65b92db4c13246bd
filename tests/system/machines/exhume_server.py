"""Runs exhume in children that it forks, so that nothing has to be imported again, and each can be killed at a moment.

It is sent what to run in lines of JSON, and says how each run ended. A run may kill itself (-9) right before its Nth
change below the directories that it is given: files opened to be written, made, renamed and removed, as Python's audit
events tell them.
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
IMPORTED = (
    "exhume.cli.commands.audit",
    "exhume.cli.commands.fix.apply",
    "exhume.cli.commands.fix.rollback",
    "exhume.collect.audit.facts",
    "exhume.collect.systemd.units",
    "exhume.diagnose.audit.judge",
    "exhume.diagnose.catalogue",
    "exhume.present.fix_view",
    "exhume.remedy.audit",
    "exhume.remedy.fixer",
    "exhume.remedy.plan",
    "exhume.remedy.services.node",
    "exhume.remedy.verify.proof",
    "exhume.remedy.zombies.apply",
    "exhume.store.read.recording",
)


def before_each_change(places: tuple[str, ...], happens: Callable[[], None]) -> None:
    """From now on call this before each change below these places."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        is_change = event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES)
        if is_change and any(_path(each).startswith(places) for each in arguments[:2]):
            happens()

    sys.addaudithook(hook)


def _path(value: Any) -> str:
    return os.fsdecode(value) if isinstance(value, str | bytes | os.PathLike) else ""


def run(order: dict[str, Any], exhume: Callable[[], None]) -> int:
    """Its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
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
    except BaseException:  # noqa: BLE001
        # As the interpreter does it for a program of its own.
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    from exhume.cli.main import run as exhume

    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line), exhume)), flush=True)


if __name__ == "__main__":
    main()
