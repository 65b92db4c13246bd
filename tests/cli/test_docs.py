"""Documentation that went stale fails: commands, flags, settings and the fields of JSON."""

import argparse
import json
import re
from pathlib import Path

import pytest
from tests.fleet.inventories import node

from exhume.cli.main import COMMANDS, parser_for
from exhume.model.inventory.codec import inventory_json
from exhume.model.settings import SETTINGS, settings_table

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = DOCS / "commands"


# Options of every command are documented once, on the page of the program.
COMMON = ("help", "color", "log_level")


def subcommands(parser):
    found = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return found[0] if found else {}


def commands(parser, prefix=()):
    """Every command as (names, options by flag)."""
    for name, command in subcommands(parser).items():
        if subcommands(command):
            yield from commands(command, (*prefix, name))
        else:
            shown = [action for action in command._actions if action.help != argparse.SUPPRESS]
            actions = [action for action in shown if action.dest not in COMMON]
            yield (*prefix, name), {flag: action for action in actions for flag in action.option_strings}


BY_NAMES = dict(commands(parser_for(list(COMMANDS))))
DOCUMENTED_FLAG = re.compile(r"^\| (`-.*?) \|", re.MULTILINE)


def flags_on(page: Path) -> set[str]:
    return {flag for cell in DOCUMENTED_FLAG.findall(page.read_text()) for flag in re.findall(r"`(-[\w-]+)`", cell)}


def test_every_command_has_a_page_and_every_page_a_command():
    assert {page.stem for page in PAGES.glob("*.md")} == {*COMMANDS, "exhume"}
    index = (DOCS / "README.md").read_text()
    assert {page.name for page in PAGES.glob("*.md")} == set(re.findall(r"\(commands/([\w.]+)\)", index))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_is_documented_and_every_documented_flag_exists(name):
    existing = set().union(*(flags for args, flags in BY_NAMES.items() if args[0] == name))
    assert flags_on(PAGES / f"{name}.md") == existing


def test_subcommands_have_their_section():
    for args in BY_NAMES:
        if len(args) > 1:
            assert f"## exhume {' '.join(args)}\n" in (PAGES / f"{args[0]}.md").read_text()


def test_the_table_of_settings_is_the_registry():
    assert settings_table() in (DOCS / "settings.md").read_text()


def test_every_setting_is_a_flag_of_a_command():
    flags = set().union(*BY_NAMES.values()) | flags_on(PAGES / "exhume.md")
    assert {entry.flag for entry in SETTINGS if entry.has_flag} <= flags


def test_common_options_are_documented_once():
    parser = parser_for([])
    common = {flag for action in parser._actions if action.dest in COMMON for flag in action.option_strings}
    assert flags_on(PAGES / "exhume.md") == common | {"--version"}


def test_exit_codes_are_documented_in_one_place():
    page = (DOCS / "exit-codes.md").read_text()
    assert set(re.findall(r"^\| `([a-z]+)`", page, re.MULTILINE)) == {*COMMANDS, "exhume"}


def test_a_flag_of_a_setting_says_what_the_registry_says():
    by_flag = {entry.flag: entry for entry in SETTINGS}
    for args, options in BY_NAMES.items():
        # The directory that the lab writes to is not the recording that others look at, nor does it record; and how
        # long a doctor or a proof looks is not how long a recorder runs.
        others = {"lab": {"--dir", "--for"}, "doctor": {"--for"}, "fix": {"--for"}}.get(args[0], set())
        for flag in (options.keys() & by_flag.keys()) - others:
            said = options[flag].help.replace("%%", "%")
            assert by_flag[flag].help in said, f"{args} {flag}"
            assert by_flag[flag].variable in said, f"{args} {flag}"


@pytest.mark.parametrize("name", ["info", "cores", "events", "incidents", "diagnose"])
def test_every_field_of_json_is_documented(name, exhume, small_recording):
    result = exhume(name, "--dir", str(small_recording), "--json", check=False)
    fields = fields_of(json.loads(result.stdout))
    page = (PAGES / f"{name}.md").read_text()
    if "(events.md)" in page:
        page += (PAGES / "events.md").read_text()
    assert "version" in fields
    assert fields <= set(re.findall(r"`(\w+)`", page))


def test_every_field_of_an_inventory_and_a_comparison_is_documented(exhume, tmp_path):
    inventories = [node(), node("ip-10-0-2-99", bootstrap=False)]
    files = [tmp_path / f"{number}.json" for number in range(2)]
    for file, inventory in zip(files, inventories, strict=True):
        file.write_text(json.dumps(inventory_json(inventory)))
        # What a service has is described with the audit.
        page = (PAGES / "inventory.md").read_text() + (PAGES / "audit.md").read_text()
        assert fields_of(inventory_json(inventory)) <= set(re.findall(r"`([\w]+)(?:\.\w+)?`", page))
    found = json.loads(exhume("compare", *map(str, files), "--json", check=False).stdout)
    assert fields_of(found) <= set(re.findall(r"`(\w+)`", (PAGES / "compare.md").read_text()))


# Objects whose names are data.
DATA = {"losses", "match", "values", "versions", "sysctls", "modules", "init", "queues", "labels"}


def fields_of(value) -> set[str]:
    """Names of fields at any depth."""
    if isinstance(value, list):
        return set().union(*map(fields_of, value[:50])) if value else set()
    if not isinstance(value, dict):
        return set()
    return set(value) | set().union(set(), *(fields_of(inner) for key, inner in value.items() if key not in DATA))
