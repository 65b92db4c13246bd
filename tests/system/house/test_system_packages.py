"""Missing system packages are installed where that is possible, and told by name where it is not."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools/system-packages"
BASICS = ("bash", "env", "dirname", "cat", "tr", "rm", "touch", "chmod")
# The commands that the script looks for, read off its own table.
_TABLE = SCRIPT.read_text().partition("needs_of_test")[2].partition("\nNEEDS\n")[0]
WANTED = {line.split()[0] for line in _TABLE.splitlines() if re.match(r"[\w.+-]+ .*\|[\w. +-]+$", line)} - {"echo"}


class Machine:
    """A path with a few commands on it, some of them made up."""

    def __init__(self, directory: Path, user: int) -> None:
        self.directory = directory
        directory.mkdir()
        for name in BASICS:
            (directory / name).symlink_to(shutil.which(name))
        self.command("id", f"echo {user}")

    def command(self, name: str, body: str = "exit 0") -> None:
        path = self.directory / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def run(self, purpose: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.directory / "bash", SCRIPT, purpose],
            env={"PATH": str(self.directory), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def with_all_but(self, *missing: str) -> "Machine":
        for name in WANTED - set(missing):
            self.command(name)
        return self


def test_the_table_is_read():
    assert {"perf", "mpstat", "gcc"} <= WANTED


def test_nothing_is_said_when_nothing_is_missing(tmp_path: Path):
    done = Machine(tmp_path / "bin", user=0).with_all_but().run("test")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_without_root_the_missing_ones_are_told_and_fail_only_in_ci(tmp_path: Path, ci: str, code: int):
    done = Machine(tmp_path / "bin", user=1000).with_all_but("perf", "mpstat").run("test", CI=ci)
    assert done.returncode == code
    assert done.stderr.count("\n") == 1
    assert "linux-perf" in done.stderr and "sysstat" in done.stderr and "iproute2" not in done.stderr


def test_root_with_apt_installs_what_is_missing_and_nothing_else(tmp_path: Path):
    machine = Machine(tmp_path / "bin", user=0).with_all_but("mpstat", "perf")
    log = tmp_path / "apt.log"
    # Knows sysstat and the second name of perf's package, as another distribution would.
    machine.command(
        "apt-get",
        f'echo "$*" >> {log}\n'
        'case "$*" in\n'
        f'*" sysstat") cat {machine.directory}/ip > {machine.directory}/mpstat; chmod +x {machine.directory}/mpstat;;\n'
        f'*" linux-tools-generic") cat {machine.directory}/ip > {machine.directory}/perf; '
        f"chmod +x {machine.directory}/perf;;\n"
        "*install*) exit 100;;\nesac",
    )
    done = machine.run("test", CI="true")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1 and "sysstat" in done.stdout
    asked = [line.split()[-1] for line in log.read_text().splitlines()]
    assert asked == ["update", "linux-perf", "linux-tools-generic", "sysstat"]


def test_an_apt_that_fails_is_told_in_one_line(tmp_path: Path):
    machine = Machine(tmp_path / "bin", user=0).with_all_but("gcc")
    machine.command("apt-get", "exit 100")
    done = machine.run("test")
    assert done.returncode == 0
    assert "gcc" in done.stderr and done.stderr.count("\n") == 1


def test_the_virtual_machine_has_needs_of_its_own(tmp_path: Path):
    machine = Machine(tmp_path / "bin", user=1000).with_all_but()
    done = machine.run("vm", CI="true")
    assert done.returncode == 1
    assert "qemu-system-x86" in done.stderr and "cpio" in done.stderr and "e2fsprogs" not in done.stderr
    for command in ("qemu-system-x86_64", "cpio", "dpkg-deb"):
        machine.command(command)
    done = machine.run("vm", CI="true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_setting_up_without_python_is_an_error_that_says_so(tmp_path: Path):
    done = Machine(tmp_path / "bin", user=1000).run("setup")
    assert done.returncode == 1
    assert "python3" in done.stderr
