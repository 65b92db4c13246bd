"""The wheel as `pipx install` takes it: offline, into an environment of its own, with its command linked."""

import json
import os
import sys
from pathlib import Path

import pytest
from tests.parts import need
from tests.schema_check import check_output
from tests.system.install.program import clean_environment, run, wheelhouse

from exhume import __version__

# long: pip installs all dependencies a second time, for a minute of CPU; test_wheel.py installs the same wheel.
pytestmark = [pytest.mark.long, pytest.mark.needs("pipx"), pytest.mark.xdist_group("services")]


def pipx_environment(directory: Path) -> dict[str, str]:
    """Everything that pipx writes is below a directory, and pip knows no package index."""
    places = {name: str(directory / name.lower()) for name in ("HOME", "PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR")}
    pip = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheelhouse()),
        "PIP_ONLY_BINARY": ":all:",
        "PIP_NO_CACHE_DIR": "1",
    }
    return {**clean_environment(), **places, **pip, "PIPX_DEFAULT_PYTHON": sys.executable}


def test_pipx_installs_the_wheel_offline_and_removes_it(wheel: Path, tmp_path: Path) -> None:
    environment = pipx_environment(tmp_path)
    offline = [need("unshare"), "--net"] if os.geteuid() == 0 else []
    run(*offline, need("pipx"), "install", wheel, environment=environment, cwd=tmp_path)
    command = tmp_path / "pipx_bin_dir/exhume"
    assert command.resolve() == (tmp_path / "pipx_home/venvs/exhume/bin/exhume").resolve()
    clean = clean_environment()
    assert run(command, "--version", environment=clean, cwd=tmp_path) == f"exhume {__version__}\n"
    recording = tmp_path / "recording"
    run(command, "record", "--for", "2s", "--dir", recording, environment=clean, cwd=tmp_path)
    shown = run(command, "info", "--dir", recording, "--json", environment=clean, cwd=tmp_path)
    check_output(["info", "--json"], shown)
    facts = json.loads(shown)
    assert (facts["exhume_version"], facts["recorded_seconds"] >= 1) == (__version__, True)
    listed = json.loads(run(need("pipx"), "list", "--json", environment=environment, cwd=tmp_path))
    main = listed["venvs"]["exhume"]["metadata"]["main_package"]
    assert (main["package_version"], main["apps"]) == (__version__, ["exhume"])
    run(need("pipx"), "uninstall", "exhume", environment=environment, cwd=tmp_path)
    assert not os.path.lexists(command)
    assert not (tmp_path / "pipx_home/venvs/exhume").exists()
