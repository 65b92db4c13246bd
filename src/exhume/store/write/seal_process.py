"""Seal in a separate process, so that a damaged segment can't take the recorder down with it.

The process reads one live segment name per line from stdin and answers each with a line of JSON.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from exhume.model.isolation import isolated_environment, isolated_python
from exhume.model.ownership import Access
from exhume.model.process import end_with
from exhume.store.format.names import LIVE_DIRECTORY, SegmentName
from exhume.store.format.schema import DECODING_ERRORS
from exhume.store.write.seal import DamagedSegment, Sealed, SealProcessFailed, seal

# Sealing never takes this long on any machine: a process that exceeds it is looping over damaged bytes.
LONGEST_S = 600.0
# Signals that end a process which decoded damaged bytes. Others (SIGKILL, SIGTERM) come from outside.
_CRASHES = tuple(
    -number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP)
)


class SealProcess:
    """Seals the segments of one recording one after another until it is closed. Raises SealProcessFailed if it can't be
    started."""

    def __init__(self, recording: Path, access: Access) -> None:
        group = "" if access.group is None else str(access.group)
        try:
            self._process = subprocess.Popen(
                isolated_python(__name__, recording, str(os.getpid()), group),
                env=isolated_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                # Ctrl-C is meant for the recorder, which lets the current segment finish.
                start_new_session=True,
            )
        except OSError as error:
            raise SealProcessFailed from error

    def seal(self, live: Path) -> Sealed | None:
        """Do what `seal.seal` does. Raises DamagedSegment also if the process crashed or timed out, and
        SealProcessFailed if it exited for another reason; it then seals nothing more."""
        answer = self._ask(live.name)
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]))
        if answer.get("damaged") is True:
            raise DamagedSegment
        if answer["path"] is None:
            return None
        path = Path(answer["path"])
        name = SegmentName.parse(path.name)
        if name is None:
            raise SealProcessFailed
        return Sealed(name, path, answer["size"], tuple(answer["tables"]))

    def kill(self) -> None:
        """Abort the current segment, from another thread."""
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def _ask(self, name: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(name + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SealProcessFailed from None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(LONGEST_S):
                raise DamagedSegment
        line = self._process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if self._process.wait() in _CRASHES:
            raise DamagedSegment
        raise SealProcessFailed


def _answer(recording: Path, live: Path, access: Access) -> dict[str, Any]:
    try:
        sealed = seal(recording, live, access)
    except DamagedSegment:
        return {"damaged": True}
    except OSError as error:
        if isinstance(error, pa.ArrowException) or error.errno is None:
            return {"damaged": True}
        return {"errno": error.errno}
    except DECODING_ERRORS:
        return {"damaged": True}
    if sealed is None:
        return {"path": None}
    return {"path": str(sealed.path), "size": sealed.size, "tables": sealed.damaged}


def main() -> None:
    recording, parent = Path(sys.argv[1]), int(sys.argv[2])
    access = Access(int(sys.argv[3]) if sys.argv[3] else None)
    # When the recorder dies, its lock is released: another recorder may start and seal the same segment.
    if not end_with(parent):
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pa.set_cpu_count(1)
    for line in sys.stdin:
        answer = _answer(recording, recording / LIVE_DIRECTORY / line.rstrip("\n"), access)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
