"""The page's server as a child process: it communicates with its parent only through the recording, and exits with
it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exhume.model.isolation import isolated_environment, isolated_python
from exhume.model.settings import LOG, LogTarget


@contextmanager
def page_process(
    directory: Path, listen: str, log: LogTarget, *, captured: bool, open_browser: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """Serve the page of a directory in a separate unprivileged process. With `captured`, the caller reads its output,
    which begins with the address."""
    command = isolated_python("exhume.cli.page", os.fspath(directory), listen)
    # A new session: Ctrl-C goes only to the parent, which stops the server when it is done.
    page = subprocess.Popen(
        [*command, "--open"] if open_browser else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if captured else None,
        stderr=subprocess.STDOUT if captured else None,
        start_new_session=True,
        env={**isolated_environment(), LOG.variable: str(log)},
    )
    try:
        yield page
    finally:
        # The server exits when this pipe is closed, even after kill -9 of the parent.
        assert page.stdin is not None
        page.stdin.close()
        page.wait()
        if page.stdout is not None:
            page.stdout.close()
