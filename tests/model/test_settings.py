"""The registry of settings: its defaults are valid, the environment is read, and mistakes name the setting."""

import re
from pathlib import Path

import pytest

import exhume
from exhume.collect.loop import RecorderOptions
from exhume.model.clock import NANOS
from exhume.model.errors import UsageError
from exhume.model.settings import (
    INTERNAL_VARIABLES,
    SETTINGS,
    LogTarget,
    RecorderSettings,
    default_directory,
    settings_table,
)


def setting(name):
    return next(entry for entry in SETTINGS if entry.name == name)


def test_every_default_is_a_valid_value():
    for entry in SETTINGS:
        entry.read(entry.default)


def test_values():
    assert setting("rate").read("97") == 97
    assert setting("max-size").read("5G") == 5 << 30
    assert setting("max-size").read("none") is None
    assert setting("max-age").read("7d") == 7 * 86400 * NANOS
    assert setting("cpu-budget").read("5%") == pytest.approx(0.05)
    assert setting("for").read("") is None
    assert setting("utc").read("yes") is True
    assert setting("listen").read("[::1]:0") == ("::1", 0)
    assert setting("token").read("") is None
    assert setting("log").read("INFO:/var/log/exhume.log") == LogTarget("info", Path("/var/log/exhume.log"))
    assert setting("log").read("debug") == LogTarget("debug")


@pytest.mark.parametrize(
    ("name", "text"),
    [("rate", "0"), ("rate", "fast"), ("rate", "20000"), ("max-size", "big"), ("max-age", "7"), ("cpu-budget", "0"),
     ("cpu-budget", "nan"), ("color", "red"), ("utc", "maybe"), ("for", "ever"),
     ("listen", "8420"), ("listen", "localhost:x"), ("token", "short"), ("token", "has a blank in its middle"),
     ("for", "-5s"), ("for", "0s"), ("max-size", "0"), ("max-size", "1023K"), ("max-age", "59s"),
     ("memory-budget", "63M"), ("memory-budget", "-1G")],
)  # fmt: skip
def test_a_mistake_names_the_flag_and_the_variable(name, text):
    with pytest.raises(UsageError) as raised:
        setting(name).read(text)
    assert setting(name).flag in str(raised.value)
    assert setting(name).variable in str(raised.value)


def test_what_is_too_little_says_how_much_it_takes():
    for name, text, least in (("for", "-5s", "1s"), ("max-size", "1K", "1M"), ("memory-budget", "1M", "64M")):
        with pytest.raises(UsageError, match=f"is too little: write {least} or more"):
            setting(name).read(text)
        setting(name).read(least)


def test_the_recorder_and_the_registry_agree():
    settings, options = RecorderSettings(Path("/x")), RecorderOptions()
    assert settings.cpu_budget == setting("cpu-budget").read(setting("cpu-budget").default) == options.cpu_budget
    assert settings.rate_hz == setting("rate").read(setting("rate").default) == options.rate_hz
    assert settings.memory_budget == setting("memory-budget").read(setting("memory-budget").default)


def test_the_environment_is_used_and_an_empty_variable_is_none():
    assert setting("rate").from_environment({"EXHUME_RATE": "11"}) == 11
    assert setting("rate").from_environment({"EXHUME_RATE": ""}) == 97
    assert setting("dir").from_environment({"EXHUME_DIR": "/x/y"}) == Path("/x/y")


def test_the_default_directory():
    assert default_directory({}, user=0) == Path("/var/lib/exhume")
    assert default_directory({"XDG_STATE_HOME": "/state"}, user=1000) == Path("/state/exhume")
    assert default_directory({"XDG_STATE_HOME": "relative"}, user=1000) == Path.home() / ".local/state/exhume"


def test_the_table_has_a_row_for_each_setting():
    rows = settings_table().splitlines()[2:]
    assert len(rows) == len(SETTINGS)
    assert all(entry.variable in row for entry, row in zip(SETTINGS, rows, strict=True))


def test_every_variable_in_the_source_is_in_the_registry():
    source = Path(exhume.__file__).parent
    named = {name for path in source.rglob("*.py") for name in re.findall(r"EXHUME_[A-Z_]+", path.read_text())}
    known = {entry.variable for entry in SETTINGS} | set(INTERNAL_VARIABLES) | {"EXHUME_"}
    assert named <= known


def test_a_bad_log_level_names_its_variable():
    with pytest.raises(UsageError, match=r"^EXHUME_LOG: 'loud'"):
        setting("log").read("loud")
