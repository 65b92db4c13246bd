"""One installed program for all tests here; the group keeps them in one process, next to the nspawn containers."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from tests.system.install.program import PYTHON, build_wheel, install


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def program(wheel, tmp_path_factory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("installed") / "venv")


@pytest.fixture(scope="session")
def opt(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed program for a container in which its interpreter is at another place."""
    copy = tmp_path_factory.mktemp("opt") / "exhume"
    shutil.copytree(program.parents[1], copy, symlinks=True, copy_function=os.link)
    for link in copy.glob("bin/python*"):
        link.unlink()
        link.symlink_to(f"{PYTHON}/bin/{Path(sys.executable).resolve().name}")
    configuration = (copy / "pyvenv.cfg").read_text()
    script = (copy / "bin/exhume").read_text()
    for name in ("pyvenv.cfg", "bin/exhume"):
        (copy / name).unlink()
    (copy / "pyvenv.cfg").write_text(re.sub(r"(?m)^home = .*$", f"home = {PYTHON}/bin", configuration))
    (copy / "bin/exhume").write_text(re.sub(r"^#!.*", "#!/opt/exhume/bin/python", script))
    (copy / "bin/exhume").chmod(0o755)
    return copy
