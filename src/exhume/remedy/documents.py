"""Files of JSON that have to survive a crash: written beside, put on the disk, and only then given their name."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from exhume.model.errors import ExhumeError
from exhume.model.ownership import PRIVATE_FILE, open_own, open_to_others
from exhume.model.remedy import Effect, Measure, Plan, Risk, Step, Unasked


class DocumentError(ExhumeError):
    """A plan or a fix that was written down can't be read or written."""


def write_document(path: Path, content: dict[str, Any]) -> None:
    """All of it or nothing is there, also when the machine loses its power meanwhile. Raises DocumentError."""
    beside = path.with_name(f".{path.name}")
    try:
        own_directory(path.parent)
        with private_file(beside) as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise DocumentError(
            f"{path} can't be written ({error.strerror}); make room there, or name another directory with --work-dir"
        ) from None


def read_document(path: Path, version: int) -> dict[str, Any]:
    """What was written. Raises DocumentError; FileNotFoundError where there is none."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise DocumentError(f"{path} can't be read ({error}); look at it, and move it away") from None
    if not isinstance(content, dict) or content.get("version") != version:
        raise DocumentError(f"{path} was written by another version of exhume; use that one, or move it away")
    return content


def own_directory(path: Path) -> None:
    """A directory in which nobody else can leave orders for us. Raises OSError, and DocumentError where others can."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    for each in (path, path.parent):
        if open_to_others(each):
            raise DocumentError(f"{each} can be written by others; name a directory of root's own with --work-dir")


def private_file(path: Path) -> TextIO:
    """A new file in the place of whatever has its name, for the owner alone. Raises OSError."""
    path.unlink(missing_ok=True)
    fd = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.fchmod(fd, PRIVATE_FILE)
    return os.fdopen(fd, "w", encoding="utf-8")


def sync_directory(path: Path) -> None:
    """New names in it are on the disk."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def plan_from(content: dict[str, Any]) -> Plan:
    """A plan out of `dataclasses.asdict`. Raises KeyError, TypeError or ValueError where it is none."""
    words = {name: tuple(content[name]) for name in ("blind_spots", "refusals")}
    # Plans of before that have none.
    unasked = tuple(Unasked(each["target"], each["why"]) for each in content.get("not_included", ()))
    steps = tuple(map(step_from, content["steps"]))
    return Plan(content["target"], content["count"], content["summary"], steps, **words, not_included=unasked)


def step_from(content: dict[str, Any]) -> Step:
    """The same for a step."""
    lists = {name: tuple(content[name]) for name in ("targets", "commands", "dependents")}
    lists["undo_commands"] = tuple(content.get("undo_commands", ()))
    files = tuple((str(path), str(text)) for path, text in content["files"])
    effects = tuple(Effect(Measure(each["measure"]), each["expected"], each["subject"]) for each in content["effects"])
    return Step(**{**content, **lists, "files": files, "effects": effects, "risk": Risk(content["risk"])})
