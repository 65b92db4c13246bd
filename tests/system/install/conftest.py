"""One installed program for all tests here; the group keeps them in one process, next to the nspawn containers."""

from pathlib import Path

import pytest
from tests.system.install.program import build_wheel, install


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def program(wheel, tmp_path_factory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("installed") / "venv")
