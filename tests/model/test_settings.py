"""The registry of settings: its defaults are valid, the environment is read, and mistakes name the setting."""

from pathlib import Path

import pytest

from exhume.collect.loop import RecorderOptions
from exhume.model.clock import NANOS
from exhume.model.errors import UsageError
from exhume.model.settings import SETTINGS, default_directory, setting, settings_table


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


@pytest.mark.parametrize(
    ("name", "text"),
    [("rate", "0"), ("rate", "fast"), ("rate", "20000"), ("max-size", "big"), ("max-age", "7"), ("cpu-budget", "0"),
     ("cpu-budget", "nan"), ("color", "red"), ("utc", "maybe"), ("for", "ever"),
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
    assert setting("cpu-budget").read(setting("cpu-budget").default) == pytest.approx(RecorderOptions().cpu_budget)


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
