"""The package of `make deb`: installed by dpkg on a copy of this system, it runs, and goes without a trace."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.parts import missing
from tests.system.install.program import run, wheelhouse

from exhume import __version__

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.needs("dpkg", "dpkg-deb", "unshare")]

# An overlay on this system's root: what the package needs is there as packages, and nothing outside is changed.
OVERLAY = """
mount -t tmpfs tmpfs "$1" && mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o lowerdir=/,upperdir="$1/upper",workdir="$1/work" "$1/root"
mount -t proc proc "$1/root/proc" && mount --rbind /dev "$1/root/dev" && mount -t tmpfs tmpfs "$1/root/tmp"
cp "$2" "$1/root/tmp/exhume.deb"
exec chroot "$1/root" /bin/sh -euc "$3"
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dist = tmp_path_factory.mktemp("dist")
    run("make", "deb", f"DIST={dist}", f"WHEELS={wheelhouse()}")
    (built,) = dist.glob(f"exhume_{__version__}_*.deb")
    return built


def in_a_copy(package: Path, tmp_path: Path, script: str) -> str:
    """What a script prints on a system that is a copy of this one, without any network."""
    command = ["unshare", "--mount", "--pid", "--fork", "--net", "sh", "-euc", OVERLAY, "sh", tmp_path, package, script]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        [os.fspath(each) for each in command], capture_output=True, text=True, check=False, env=environment
    )
    if "overlay" in done.stderr and "mount" in done.stderr:
        missing(f"an overlay on the root file system ({done.stderr.strip()})")
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_it_is_installed_runs_and_is_removed(package: Path, tmp_path: Path) -> None:
    script = """
    dpkg --install /tmp/exhume.deb
    test "$(command -v exhume)" = /usr/bin/exhume
    exhume --version
    exhume record --for 2s --dir /tmp/recording >/dev/null 2>&1
    exhume info --dir /tmp/recording --json | /usr/bin/python3 -c '
import json, sys
print(json.load(sys.stdin)["node"])'
    /opt/exhume/bin/python -c 'import lightkube, exhume; print(exhume.__file__)'
    cd /usr/share && ls man/man1/exhume.1.gz man/man1/exhume-diagnose.1.gz zsh/vendor-completions/_exhume \
        bash-completion/completions/exhume fish/vendor_completions.d/exhume.fish
    find /opt/exhume ! -user root
    find /opt/exhume -perm /022 ! -type l
    dpkg --remove exhume
    ls -d /opt/exhume /usr/bin/exhume 2>/dev/null || echo gone
    """
    lines = in_a_copy(package, tmp_path, script).splitlines()
    assert f"exhume {__version__}" in lines
    assert os.uname().nodename in lines
    assert [line for line in lines if line.startswith("/opt/")] == [
        next(line for line in lines if line.endswith("site-packages/exhume/__init__.py"))
    ]
    assert {"man/man1/exhume-diagnose.1.gz", "zsh/vendor-completions/_exhume"} <= set(lines)
    assert any("exhume install" in line for line in lines)
    assert lines[-1] == "gone"


def test_what_it_depends_on_is_named(package: Path) -> None:
    fields = dict(
        line.split(": ", 1) for line in run("dpkg-deb", "--field", package).splitlines() if not line.startswith(" ")
    )
    system = run("/usr/bin/python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])").strip()
    assert fields["Depends"].split(", ")[0] == system
    assert fields["Version"] == __version__
    assert int(fields["Installed-Size"]) < 400_000
