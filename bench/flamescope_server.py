"""Netflix's FlameScope from an existing checkout: its packages, and running it on loopback."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import BenchError
from bench.serving import Served
from bench.venvs import venv_with

VARIABLE = "FLAMESCOPE"
START_S = 60.0
# Its settings are a file of its own that is left alone: what has to differ is set before it runs. With its debug mode
# on, it starts itself twice.
LAUNCH = """\
import sys
from app import APP, config
config.PROFILE_DIR = sys.argv[1]
APP.run(host="127.0.0.1", port=int(sys.argv[2]), threaded=True, debug=False)
"""


@dataclass(frozen=True, slots=True)
class FlameScope:
    """A checkout, and the Python that has the packages it asks for."""

    checkout: Path
    python: Path

    @contextmanager
    def server(self, profiles: Path) -> Iterator[Served]:
        """FlameScope over a folder of profiles, until the block ends."""
        port = _free_port()
        log = profiles.with_suffix(".server.log")
        # Its compiled modules are kept, as they would be, but not in the checkout.
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        clean["PYTHONPYCACHEPREFIX"] = str(self.python.parents[1] / "pycache")
        with log.open("wb") as sink:
            server = subprocess.Popen(
                [str(self.python), "-c", LAUNCH, str(profiles), str(port)],
                cwd=self.checkout,
                env=clean,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait_for(server, port, log)
            yield Served(f"http://127.0.0.1:{port}/", server.pid)
        finally:
            server.terminate()
            server.wait(30)


def flamescope(build: Path) -> FlameScope:
    """The checkout that the environment names, with its packages in a venv of their own below `build`."""
    named = os.environ[VARIABLE]
    checkout = Path(named).resolve()
    requirements = checkout / "requirements.txt"
    if not requirements.is_file() or not (checkout / "app" / "perf").is_dir():
        raise BenchError(f"{VARIABLE} is {named}, which is no checkout of FlameScope")
    return FlameScope(checkout, venv_with(build / "flamescope-venv", requirements.read_text().splitlines()))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _wait_for(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.005)
        else:
            return
    raise BenchError(f"FlameScope did not start (it needs the library libmagic): {log.read_text()[-500:]}")
