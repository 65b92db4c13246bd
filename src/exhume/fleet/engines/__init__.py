"""Query engines: in this process, or on a Ray cluster. Both run the same SQL with DuckDB, file by file or all at once,
and merge the parts with the same SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from exhume.fleet.engines.files import LakeFiles, list_files
from exhume.fleet.lake import Lake
from exhume.fleet.queries import Query
from exhume.model.clock import Window
from exhume.model.errors import ExhumeError

# How often files are listed again after a compaction replaced them.
_LISTED_AGAIN = 3


class EngineError(ExhumeError):
    """The engine is not installed or cannot be reached."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The merged rows, and the files that could not be read, each with its reason."""

    rows: pa.Table
    unread: tuple[tuple[str, str], ...] = ()


class Engine(Protocol):
    """The interface of an engine."""

    name: str

    def run(self, asked: Sequence[tuple[Query, LakeFiles]]) -> list[Answer]:
        """Answer several queries, each over its own files. Raises EngineError; raises LakeError if the lake becomes
        unreachable: files that cannot be read then are not damaged, and an answer without them would be wrong."""

    def close(self) -> None: ...


def ask(engine: Engine, lake: Lake, questions: Sequence[tuple[Query, Window]]) -> list[Answer]:
    """Answer queries about windows of a lake. Files replaced between listing and reading are listed again. Raises
    EngineError, LakeError."""
    answers: dict[int, Answer] = {}
    left = list(range(len(questions)))
    for _ in range(_LISTED_AGAIN):
        listed = [
            (query, list_files(lake, query.table, window)) for query, window in (questions[each] for each in left)
        ]
        answers |= zip(left, engine.run(listed), strict=True)
        left = [each for each in left if any(lake.gone(path) for path, _ in answers[each].unread)]
        if not left:
            break
    return [answers[each] for each in range(len(questions))]
