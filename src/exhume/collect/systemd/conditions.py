"""Which condition of a unit is not met, where systemd itself only remembers that one of them was not.

It forgets what came of each when it reads its unit files again. Those that ask for files can be looked at anew.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Condition


def looked_at(
    root: NodeRoot | None, conditions: tuple[Condition, ...], failed: tuple[str, ...]
) -> tuple[Condition, ...]:
    """The same, with those that stand for files judged by what is there now; `failed` are the kinds (Condition, Assert)
    of which one did not hold. A kind for which none can be named gets a row without a parameter, also where there is no
    root to look at."""
    told = list(conditions)
    for kind in failed:
        if any(each.held is False for each in told if each.name.startswith(kind)):
            continue
        told = [_judged(root, each) if root is not None and each.name.startswith(kind) else each for each in told]
        own = [each for each in told if each.name.startswith(kind)]
        if not any(each.held is False and not each.trigger for each in own) and not _no_trigger_holds(own):
            told.append(Condition(kind, "", False))
    return tuple(told)


def _no_trigger_holds(conditions: list[Condition]) -> bool:
    """Of triggering conditions one has to hold."""
    triggers = [each for each in conditions if each.trigger]
    return bool(triggers) and all(each.held is False for each in triggers)


def _judged(root: NodeRoot, condition: Condition) -> Condition:
    look = _LOOKS.get(condition.name.removeprefix("Condition").removeprefix("Assert"))
    if condition.held is not None or look is None or not condition.parameter.startswith("/"):
        return condition
    try:
        found = look(root.file(condition.parameter))
    except OSError:
        found = False
    return replace(condition, held=found is not condition.negated)


def _is_full_directory(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


_LOOKS: dict[str, Callable[[Path], bool]] = {
    "PathExists": Path.exists,
    "PathIsDirectory": Path.is_dir,
    "DirectoryNotEmpty": _is_full_directory,
    "FileNotEmpty": lambda path: path.is_file() and path.stat().st_size > 0,
    "FileIsExecutable": lambda path: path.is_file() and os.access(path, os.X_OK),
}
