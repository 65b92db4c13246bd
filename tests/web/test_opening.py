"""While the server is still being loaded its page is there, guarded as ever; what takes more waits."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from httpx2 import ASGITransport, AsyncClient

from exhume.present.web.guard import HEADERS, Rules
from exhume.present.web.opened import Opened
from exhume.present.web.opening import Opening

HOST = "http://localhost"


class _Loading:
    """A server whose framework is loaded no sooner than it is let."""

    def __init__(self, directory, static, monkeypatch, rules=Rules(), error=None):  # noqa: B008
        (static / "index.html").write_text("<!doctype html><title>exhume</title>")
        (static / "icon.svg").write_text("<svg/>")
        self.let = threading.Event()
        self.failed = threading.Event()
        self.app = Opening(Opened(directory), rules, self.failed.set, static)
        create = self.app._create

        def later():
            assert self.let.wait(30)
            if error is not None:
                raise error
            return create()

        monkeypatch.setattr(self.app, "_create", later)
        self._news = asyncio.Queue()
        self._said = asyncio.Queue()

    async def __aenter__(self):
        await self._news.put({"type": "lifespan.startup"})
        self._life = asyncio.ensure_future(self.app({"type": "lifespan"}, self._news.get, self._said.put))
        assert (await self._said.get())["type"] == "lifespan.startup.complete"
        self.client = AsyncClient(transport=ASGITransport(app=self.app), base_url=HOST)
        return self

    async def __aexit__(self, *_):
        self.let.set()
        await self.client.aclose()
        await self._news.put({"type": "lifespan.shutdown"})
        assert (await self._said.get())["type"] == "lifespan.shutdown.complete"
        await self._life


def run(work):
    """In a thread of its own: a browser of other tests keeps a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(work())).result(60)


def test_the_page_is_answered_before_the_rest_is_loaded(written, tmp_path, monkeypatch):
    async def asked():
        async with _Loading(written[0], tmp_path, monkeypatch) as server:
            question = asyncio.ensure_future(server.client.get("/api/incidents"))
            page, icon = [await server.client.get(path) for path in ("/", "/icon.svg")]
            assert not question.done()
            server.let.set()
            answer = await question
            again = await server.client.get("/")
        return page, icon, answer, again

    page, icon, answer, again = run(asked)
    assert page.status_code == again.status_code == icon.status_code == 200
    assert page.content == again.content
    assert icon.headers["content-type"] == "image/svg+xml"
    assert page.headers["cache-control"] == "no-cache"
    assert {name: page.headers[name] for name in HEADERS} == HEADERS
    assert answer.json()["incidents"]


@pytest.mark.parametrize("exists", [True, False])
def test_the_recording_is_told_before_the_rest_is_loaded_in_the_same_words(exists, written, tmp_path, monkeypatch):
    async def asked():
        async with _Loading(written[0] if exists else tmp_path / "none", tmp_path, monkeypatch) as server:
            head = await server.client.head("/api/recording")
            early = await server.client.get("/api/recording")
            assert not server.app._loading.done()
            server.let.set()
            # Answered by the application alone: it is there now.
            await server.client.get("/api/incidents")
            assert server.app._loading.done()
            return head, early, await server.client.get("/api/recording")

    head, early, late = run(asked)
    assert early.status_code == late.status_code == head.status_code == 200
    assert early.json() == late.json()
    assert early.json()["state"] == ("ready" if exists else "empty")
    assert dict(early.headers) == dict(late.headers)


def test_nobody_slips_in_before_the_rest_is_loaded(written, tmp_path, monkeypatch):
    async def asked():
        async with _Loading(written[0], tmp_path, monkeypatch, Rules(token="a-token-of-some-length")) as server:
            strange = await server.client.get("/", headers={"host": "evil.example"})
            early = await server.client.get("/")
            told = await server.client.get("/api/recording")
            question = asyncio.ensure_future(server.client.get("/api/incidents"))
            server.let.set()
            return [strange, early, told, await question]

    assert [answer.status_code for answer in run(asked)] == [403, 401, 401, 401]


def test_what_can_not_be_loaded_ends_the_server(written, tmp_path, monkeypatch):
    server = None

    async def asked():
        nonlocal server
        async with _Loading(written[0], tmp_path, monkeypatch, error=ImportError("a library is broken")) as server:
            server.let.set()
            with pytest.raises(ImportError):
                await server.client.get("/api/incidents")

    run(asked)
    assert server.failed.is_set()
    with pytest.raises(ImportError, match="a library is broken"):
        server.app.check()
