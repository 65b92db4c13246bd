"""tools/system-packages lists missing packages with their use, then installs them where it can."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools/system-packages"
BASICS = ("bash", "env", "dirname", "cat", "cp", "flock", "tr", "rm", "touch", "chmod")
# The commands that the script checks for, from its own table.
_TABLE = SCRIPT.read_text().partition("requirements_of_test()")[2].partition("\nTABLE\n")[0]
COMMANDS = {line.split()[0] for line in _TABLE.splitlines() if line.count("|") >= 2} - {"echo"}


class Machine:
    """A PATH with a few commands, some of them fake."""

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
        for name in COMMANDS - set(missing):
            self.command(name)
        return self


def listed(output: str) -> set[str]:
    """The packages that were printed, one per line with its use."""
    lines = [re.fullmatch(r"  (\S.*?)  +(\S.*)", line) for line in output.splitlines()[1:]]
    assert all(lines), output
    return {line[1] for line in lines}


def test_the_table_is_read():
    assert {"perf", "mpstat", "gcc"} <= COMMANDS


def test_no_output_when_nothing_is_missing(tmp_path: Path):
    done = Machine(tmp_path / "bin", user=0).with_all_but().run("test")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_without_root_missing_packages_are_listed_and_fail_only_in_ci(tmp_path: Path, ci: str, code: int):
    done = Machine(tmp_path / "bin", user=1000).with_all_but("perf", "mpstat").run("test", CI=ci)
    assert done.returncode == code
    assert listed(done.stderr) == {"linux-perf or linux-tools-generic", "sysstat"}


class Apt:
    """An apt that knows sysstat and the second name of perf's package, as another distribution would."""

    def __init__(self, machine: Machine, log: Path) -> None:
        self.log = log
        directory = machine.directory
        machine.command("apt-cache", 'case "$2" in sysstat|linux-tools-generic) exit 0;; esac\nexit 100')
        machine.command(
            "apt-get",
            f'echo "$*" >> {log}\n'
            f'case "$*" in *"$BROKEN"*) exit 100;; esac\n'
            'while [ "$1" != install ]; do shift || exit 0; done\n'
            'for name in "$@"; do\n'
            f'case "$name" in sysstat) cp {directory}/ip {directory}/mpstat;; '
            f"linux-tools-generic) cp {directory}/ip {directory}/perf;; "
            "install|-*) ;; *) exit 100;; esac\ndone",
        )

    def calls(self) -> list[str]:
        """What each call is about, without its options."""
        return [re.sub(r".*(--no-install-recommends|-o \S+) ", "", line) for line in self.log.read_text().splitlines()]


def test_root_with_apt_installs_what_is_missing_at_once_and_nothing_else(tmp_path: Path):
    machine = Machine(tmp_path / "bin", user=0).with_all_but("mpstat", "perf")
    apt = Apt(machine, tmp_path / "apt.log")
    done = machine.run("test", CI="true", BROKEN="none")
    assert (done.returncode, done.stderr) == (0, "")
    assert listed(done.stdout) == {"linux-perf or linux-tools-generic", "sysstat"}
    assert apt.calls() == ["update", "linux-tools-generic sysstat"]
    assert "-o DPkg::Lock::Timeout=600" in apt.log.read_text().splitlines()[1]


def test_what_cannot_be_installed_keeps_nothing_else_from_it(tmp_path: Path):
    machine = Machine(tmp_path / "bin", user=0).with_all_but("mpstat", "perf")
    apt = Apt(machine, tmp_path / "apt.log")
    done = machine.run("test", CI="true", BROKEN="linux-tools-generic")
    assert done.returncode == 1
    assert listed(done.stderr) == {"linux-perf or linux-tools-generic"}
    assert apt.calls() == ["update", "linux-tools-generic sysstat", "linux-perf", "linux-tools-generic", "sysstat"]
    # A lock that is still held after ten minutes is not waited for again, package by package.
    assert all("-o DPkg::Lock::Timeout=0" in line for line in apt.log.read_text().splitlines()[2:])


def test_the_list_is_printed_before_anything_is_installed(tmp_path: Path):
    machine = Machine(tmp_path / "bin", user=0).with_all_but("mpstat")
    machine.command("apt-get", "kill $PPID")
    done = machine.run("test")
    assert listed(done.stdout) == {"sysstat"}


def test_packages_that_apt_cannot_install_are_listed(tmp_path: Path):
    machine = Machine(tmp_path / "bin", user=0).with_all_but("gcc")
    machine.command("apt-get", "exit 100")
    done = machine.run("test")
    assert done.returncode == 0
    assert listed(done.stderr) == {"gcc", "libc6-dev"}


def test_the_test_vm_has_its_own_requirements(tmp_path: Path):
    machine = Machine(tmp_path / "bin", user=1000).with_all_but()
    done = machine.run("vm", CI="true")
    assert done.returncode == 1
    assert listed(done.stderr) == {"qemu-system-x86", "cpio", "dpkg"}
    for command in ("qemu-system-x86_64", "cpio", "dpkg-deb"):
        machine.command(command)
    done = machine.run("vm", CI="true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_either_browser_does_for_the_tests_and_benchmarks_take_the_whole(tmp_path: Path):
    machine = Machine(tmp_path / "bin", user=1000).with_all_but("chromium-headless-shell")
    assert machine.run("test", CI="true").returncode == 1
    machine.command("chromium")
    assert machine.run("test", CI="true").returncode == 0
    shell_alone = Machine(tmp_path / "other", user=1000).with_all_but()
    assert shell_alone.run("test", CI="true").returncode == 0
    done = shell_alone.run("bench", CI="true")
    assert (done.returncode, listed(done.stderr)) == (1, {"chromium or chromium-browser"})


def test_setup_without_python_is_an_error(tmp_path: Path):
    done = Machine(tmp_path / "bin", user=1000).run("setup")
    assert done.returncode == 1
    assert "python3" in listed(done.stderr)
