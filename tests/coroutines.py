"""Coroutines in tests."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float = 60.0) -> T:
    """Run a coroutine in a thread of its own: a browser of other tests keeps a loop in the main one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(work())).result(timeout_s)
