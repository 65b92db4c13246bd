"""`exhume install` and `uninstall`: what is refused before anything is changed, and what would be written."""

import os
import re
import sys
from pathlib import Path

import pytest

from exhume.cli import exit_codes
from exhume.cli.commands import install
from exhume.control.installation import ALLOWED_ADDRESSES, OWN_FILES, OWN_LINKS


def test_a_dry_run_prints_every_file_and_changes_nothing(exhume):
    result = exhume("install", "--dry-run", "--allow-address", "192.0.2.7", "--allow-address", "10.1.2.3/16")
    for path in (*OWN_FILES, *OWN_LINKS):
        assert f"# {path}" in result.stdout
    assert not re.search(r"@[A-Z]+@", result.stdout)
    assert "\nIPAddressAllow=192.0.2.7 10.1.0.0/16\n" in result.stdout
    assert ALLOWED_ADDRESSES not in exhume("install", "--dry-run").stdout
    assert not any(Path(path).exists() for path in OWN_FILES)


@pytest.mark.parametrize("address", ["alerts.example", "192.0.2.7:443", "any", "", "10.0.0.0/40", "fe80::1%eth0"])
def test_an_address_that_systemd_would_not_take_is_refused(exhume, address):
    result = exhume("install", "--dry-run", "--allow-address", address, check=False)
    assert result.returncode == exit_codes.ERROR
    assert "--allow-address" in result.stderr and not result.stdout


def test_settings_that_the_unit_refuses_are_named(tmp_path):
    defaults, drop_ins = tmp_path / "default", tmp_path / "drop-ins"

    def named(*given: str) -> list[str]:
        sentences = install.denied_settings(defaults, drop_ins, given)
        assert all("--allow-address" in each and "T0" not in each for each in sentences)
        return [each.partition(" ")[0] for each in sentences]

    assert named() == []
    remote = ["EXHUME_WEBHOOK='https://hooks.example/T0/secret'", "EXHUME_PUSH=https://192.0.2.7:8460"]
    near = ["EXHUME_OTLP=http://[::1]:4318", "EXHUME_MAX_SIZE=20G", "# EXHUME_S3_ENDPOINT=https://store.example"]
    defaults.write_text("\n".join([*remote, "EXHUME_METRICS=0.0.0.0:9739", *near]))
    assert named() == ["EXHUME_WEBHOOK", "EXHUME_PUSH", "EXHUME_METRICS"]
    # What a name stands for is not known here, and who scrapes neither; the address of the hub is.
    assert named("192.0.2.0/24") == []
    assert named("198.51.100.1") == ["EXHUME_PUSH"]
    drop_ins.mkdir()
    (drop_ins / "override.conf").write_text("[Service]\nIPAddressAllow=localhost 192.0.2.7\n")
    assert named() == []
    # Those of an earlier installation are replaced by what is given now.
    (drop_ins / "override.conf").rename(drop_ins / Path(ALLOWED_ADDRESSES).name)
    assert named() == [] and named("198.51.100.1") == ["EXHUME_PUSH"]
    (drop_ins / "override.conf").write_text("IPAddressAllow=any")
    assert named("198.51.100.1") == []
    defaults.write_text("EXHUME_PUSH=/srv/lake\nEXHUME_METRICS=127.0.0.1:9739\n")
    (drop_ins / "override.conf").unlink()
    assert named("198.51.100.1") == []


def test_the_recorder_alone(exhume):
    assert "exhume-page" not in exhume("install", "--dry-run", "--no-page").stdout


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_without_root_it_is_refused_in_a_sentence(exhume, monkeypatch, command):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = exhume(command, check=False)
    assert result.returncode == exit_codes.ERROR
    assert "root" in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.root
def test_nothing_installed_is_no_data(exhume):
    assert exhume("uninstall", check=False).returncode == exit_codes.NO_DATA


@pytest.mark.parametrize(("mode", "reason"), [(0o777, "another user"), (0o700, "can't read")])
@pytest.mark.root
def test_a_program_that_services_must_not_or_can_not_run_is_refused(monkeypatch, tmp_path, mode, reason):
    place = tmp_path / "bin"
    place.mkdir()
    (place / "python").touch(0o755)
    place.chmod(mode)
    monkeypatch.setattr(install, "INTERPRETER", str(place / "python"))
    monkeypatch.setattr(install, "_HOMES", ())
    monkeypatch.setattr(install, "package_file", str(place / "python"))
    monkeypatch.setattr(install.os, "__file__", str(place / "python"))
    with pytest.raises(install.UsageError, match=reason):
        install.refuse_unsafe_program(page=True)


def test_a_program_in_a_home_directory_is_refused(monkeypatch):
    monkeypatch.setattr(install, "INTERPRETER", "/home/someone/venv/bin/python")
    with pytest.raises(install.UsageError, match="home"):
        install.refuse_unsafe_program(page=False)


def test_the_command_is_the_script_next_to_the_interpreter_or_the_module(monkeypatch, tmp_path):
    script = tmp_path / "exhume"
    script.touch()
    monkeypatch.setattr(install, "INTERPRETER", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert install.program_command() == [str(script)]
    monkeypatch.setattr(sys, "argv", ["/elsewhere/exhume"])
    assert install.program_command()[-2:] == ["-m", "exhume.cli.main"]


def test_a_path_that_needs_quoting_is_refused(monkeypatch, tmp_path):
    script = tmp_path / "a b" / "exhume"
    script.parent.mkdir()
    script.touch()
    monkeypatch.setattr(install, "INTERPRETER", str(script.parent / "python"))
    monkeypatch.setattr(sys, "argv", [str(script)])
    with pytest.raises(install.UsageError, match="unit file"):
        install.program_command()
