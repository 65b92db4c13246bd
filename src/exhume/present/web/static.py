"""The page's files: those that were built, and nothing else."""

from mimetypes import guess_type
from pathlib import Path

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

STATIC = Path(__file__).parent / "static"

UNBUILT = """exhume's page was not built into this installation.
Build it with `make web`, or reinstall exhume with pip. The endpoints under /api work without it.
"""


class PageFiles:
    """Serves the files that exist at the start, by their exact names: no path can lead anywhere else. They are small,
    and held in memory."""

    def __init__(self, directory: Path) -> None:
        self._files = {
            "/" + path.relative_to(directory).as_posix(): _answer(path)
            for path in sorted(directory.rglob("*"))
            if path.is_file() and not path.name.startswith(".")
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] or "/"
        if path == "/" and not self._files:
            await PlainTextResponse(UNBUILT, 503)(scope, receive, send)
            return
        found = self._files.get("/index.html" if path == "/" else path)
        if found is None:
            await PlainTextResponse("there is nothing at this address\n", 404)(scope, receive, send)
            return
        await found(scope, receive, send)


def _answer(file: Path) -> Response:
    # Names of built files carry a hash of their content; the page itself is requested each time.
    kept = "no-cache" if file.suffix == ".html" else "public, max-age=31536000, immutable"
    return Response(file.read_bytes(), headers={"cache-control": kept}, media_type=guess_type(file.name)[0])
