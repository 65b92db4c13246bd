"""Documentation that went stale fails: commands, flags, settings and the fields of JSON."""

import json
import re
from pathlib import Path

import pytest
import typer

from exhume.cli.main import app
from exhume.model.settings import SETTINGS, settings_table

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = DOCS / "commands"


def commands(group=None, prefix=()):
    """Every command as (words, flags); a group counts as the page that its subcommands share."""
    root = group or typer.main.get_command(app)
    for name, command in root.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*prefix, name))
        else:
            yield (*prefix, name), {flag for parameter in command.params for flag in parameter.opts}


COMMANDS = dict(commands())
DOCUMENTED_FLAG = re.compile(r"^\| (`-.*?) \|", re.MULTILINE)


def flags_on(page: Path) -> set[str]:
    return {flag for cell in DOCUMENTED_FLAG.findall(page.read_text()) for flag in re.findall(r"`(-[\w-]+)`", cell)}


def test_every_command_has_a_page_and_every_page_a_command():
    assert {page.stem for page in PAGES.glob("*.md")} == {words[0] for words in COMMANDS} | {"exhume"}
    index = (DOCS / "README.md").read_text()
    assert {page.name for page in PAGES.glob("*.md")} == set(re.findall(r"\(commands/([\w.]+)\)", index))


@pytest.mark.parametrize("name", sorted({words[0] for words in COMMANDS}))
def test_every_flag_is_documented_and_every_documented_flag_exists(name):
    existing = set().union(*(flags for words, flags in COMMANDS.items() if words[0] == name)) - {"--help", "-h"}
    assert flags_on(PAGES / f"{name}.md") == existing


def test_subcommands_have_their_section():
    for words in COMMANDS:
        if len(words) > 1:
            assert f"## exhume {' '.join(words)}\n" in (PAGES / f"{words[0]}.md").read_text()


def test_the_table_of_settings_is_the_registry():
    assert settings_table() in (DOCS / "settings.md").read_text()


def test_every_setting_is_a_flag_of_a_command():
    flags = set().union(*COMMANDS.values())
    assert {entry.flag for entry in SETTINGS} <= flags


def test_a_flag_of_a_setting_takes_its_words_from_the_registry():
    by_flag = {entry.flag: entry for entry in SETTINGS}
    root = typer.main.get_command(app)
    for name, command in root.commands.items():
        for parameter in getattr(command, "params", ()):
            entry = by_flag.get(parameter.opts[0])
            if entry is not None:
                assert parameter.envvar == entry.variable, f"{name} {entry.flag}"
                assert parameter.help == entry.help


@pytest.mark.parametrize("name", ["info", "cores", "events", "incidents"])
def test_every_field_of_json_is_documented(name, exhume, small_recording):
    result = exhume(name, "--dir", str(small_recording), "--json", check=False)
    fields = fields_of(json.loads(result.stdout))
    page = (PAGES / f"{name}.md").read_text()
    if "(events.md)" in page:
        page += (PAGES / "events.md").read_text()
    assert "version" in fields
    assert fields <= set(re.findall(r"`(\w+)`", page))


def fields_of(value) -> set[str]:
    """Names of fields at any depth; the names inside `losses` are data."""
    if isinstance(value, list):
        return set().union(*map(fields_of, value[:50])) if value else set()
    if not isinstance(value, dict):
        return set()
    return set(value) | set().union(set(), *(fields_of(inner) for key, inner in value.items() if key != "losses"))
