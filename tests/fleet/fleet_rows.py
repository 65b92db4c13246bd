"""Batches made to order, a hub that is called without a network, and what is in a lake."""

import json
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from tests.coroutines import in_thread

from exhume.fleet.batch import Batch
from exhume.fleet.hub import Hub, create_app
from exhume.fleet.lake import Lake
from exhume.fleet.schema import TABLES
from exhume.fleet.tokens import Tokens

MINUTE_US = 60_000_000
SPOOL = "00c0ffee00c0ffee"
T = TypeVar("T")


def this_minute() -> int:
    return int(time.time()) // 60 * MINUTE_US


def summaries(minutes: int = 1, first: int | None = None, **more: list[Any]) -> dict[str, list[Any]]:
    first = this_minute() - minutes * MINUTE_US if first is None else first
    return {
        "minute": [first + number * MINUTE_US for number in range(minutes)],
        "boot_id": ["1f0c5a9e" + "0" * 24] * minutes,
        "uptime_s": [3600.0 + 60 * number for number in range(minutes)],
        "cores": [96] * minutes,
        "busiest_share": [round(0.1 + number % 7 / 100, 3) for number in range(minutes)],
        "busiest_state": ["user"] * minutes,
        **more,
    }


def batch(node: str = "node-1", seq: int = 0, spool: str = SPOOL, **tables: Any) -> Batch:
    return Batch(node, spool, seq, tables or {"summaries": summaries()})


def packed(document: Any) -> bytes:
    """Any document, as the body of a request."""
    import gzip

    return gzip.compress(json.dumps(document).encode())


def rows_in(lake: Lake | Path, table: str = "summaries") -> list[dict[str, Any]]:
    """All rows of a table, as any reader of Parquet finds them."""
    root = lake if isinstance(lake, Path) else lake.directory
    assert root is not None
    files = sorted((root / table).rglob("*.parquet"))
    parts = [pa.parquet.ParquetFile(path).read() for path in files]
    return pa.concat_tables(parts, promote_options="default").to_pylist() if parts else []


def keys_in(lake: Lake | Path, table: str = "summaries") -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in TABLES[table].key) for row in rows_in(lake, table))


class HubClient:
    """A hub whose application is called in this process. `act` gets it while it runs."""

    def __init__(self, directory: Path, nodes: tuple[str, ...] = ("node-1", "node-2"), fold_s: float = 3600.0) -> None:
        self.lake = Lake.open(str(directory / "lake"))
        self.state = directory / "state"
        self.tokens = {node: Tokens(self.state).add(node) for node in nodes}
        self._fold_s = fold_s
        self.hub: Hub | None = None

    def run(self, act: Callable[["HubClient"], Awaitable[T]]) -> T:
        async def whole() -> T:
            self.hub = Hub(self.lake, self.state, fold_s=self._fold_s)
            self._app = create_app(self.hub)
            async with AsyncExitStack() as running:
                await running.enter_async_context(self.hub.running())
                return await act(self)

        return in_thread(whole)

    async def post(
        self, body: bytes, node: str = "node-1", path: str = "/v1/batches", **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """Status and answer of a request."""
        given = {"authorization": f"Bearer {self.tokens.get(node, 'no')}", "content-length": str(len(body)), **headers}
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()],
        }
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])
        answers: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return next(messages)

        async def send(message: Any) -> None:
            answers.append(message)

        await self._app(scope, receive, send)
        return answers[0]["status"], json.loads(answers[1]["body"])
