"""Completions and man pages, generated from the parser: every command and option, as the shells read them."""

import argparse
import importlib.util
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

import pytest

from exhume.cli.main import COMMANDS, parser_for
from exhume.model.settings import SETTINGS

ROOT = Path(__file__).resolve().parents[3]
# Prints the candidates for each line of its input, one line each, after the line itself and before an empty one.
BASH = r"""
source "$1"
while IFS= read -r line; do
  IFS=' ' read -ra COMP_WORDS <<<"$line"
  [[ "$line" != *' ' ]] || COMP_WORDS+=('')
  COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
  _shtab_exhume 2>/dev/null
  printf '%s\n' "${COMPREPLY[@]}" ''
done
"""


def load():
    spec = importlib.util.spec_from_file_location("shell_files", ROOT / "tools/shell_files.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def share(tmp_path_factory) -> Path:
    """The generated files, as below /usr/share."""
    directory = tmp_path_factory.mktemp("share")
    stale = directory / "man/man1/exhume-gone.1"
    stale.parent.mkdir(parents=True)
    stale.touch()
    assert load().main([str(directory)]) == 0
    assert not stale.exists()
    return directory


def in_bash(share: Path, lines: list[str], cwd: Path = ROOT) -> list[set[str]]:
    command = ["bash", "--norc", "--noprofile", "-c", BASH, "bash", share / "bash-completion/completions/exhume"]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True, timeout=60, cwd=cwd
    )
    assert not done.stderr
    found = [set(block.splitlines()) for block in done.stdout.split("\n\n")]
    assert len(found) >= len(lines)
    return found[: len(lines)]


def flags_by_command() -> dict[str, set[str]]:
    """The flags of each command and action: `exhume lab run` and the like."""
    found: dict[str, set[str]] = {}

    def walk(parser: argparse.ArgumentParser) -> None:
        shown = [each for each in parser._actions if each.help != argparse.SUPPRESS]
        found[parser.prog] = {flag for each in shown for flag in each.option_strings}
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for each in action.choices.values():
                    walk(each)

    walk(parser_for(list(COMMANDS)))
    return found


def test_bash_completes_every_command_and_option(share):
    flags = flags_by_command()
    assert len(flags) > 30
    commands, *options = in_bash(share, ["exhume ", *(f"{command} -" for command in flags)])
    assert commands == set(COMMANDS)
    assert dict(zip(flags, options, strict=True)) == flags


def test_bash_completes_actions_choices_files_and_scenarios(share, tmp_path):
    (tmp_path / "incident").mkdir()
    (tmp_path / "incident.json").touch()
    asked = {
        "exhume diag": {"diagnose"},
        "exhume fix ": {"plan", "apply", "verify", "rollback", "list"},
        "exhume lab run softirq": {"softirq-storm"},
        "exhume cores --measure soft": {"softirq"},
        "exhume diagnose --dir inci": {"incident"},
        "exhume compare inci": {"incident", "incident.json"},
        "exhume diagnose --dir incident --ht": {"--html"},
        "exhume -v record --for 5s --ra": {"--rate"},
    }
    assert dict(zip(asked, in_bash(share, list(asked), tmp_path), strict=True)) == asked


@pytest.mark.needs("fish")
def test_fish_completes(share, tmp_path):
    asked = {
        "exhume diag": {"diagnose"},
        "exhume diagnose --ht": {"--html"},
        "exhume fix ro": {"rollback"},
        "exhume lab run softirq": {"softirq-storm"},
        "exhume cores --measure soft": {"softirq"},
    }
    script = "source $argv[1]; for line in $argv[2..]; complete -C $line; echo; end"
    file = share / "fish/vendor_completions.d/exhume.fish"
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        ["fish", "--no-config", "-c", script, file, *asked], capture_output=True, text=True, check=True, env=environment
    )
    blocks = [block.splitlines() for block in done.stdout.split("\n\n")][: len(asked)]
    # A candidate may come with its description, behind a tab.
    found = [{line.partition("\t")[0] for line in block} for block in blocks]
    assert dict(zip(asked, found, strict=True)) == asked
    assert any("\t" in line for line in blocks[0])


@pytest.mark.needs("zsh")
def test_zsh_completes(share, tmp_path):
    """As someone types it: zsh completes in its line editor alone."""
    asked = {
        "exhume diag\t": "exhume diagnose ",
        "exhume diagnose --ht\t": "exhume diagnose --html ",
        "exhume fix ro\t": "exhume fix rollback ",
        "exhume cores --measure soft\t": "exhume cores --measure softirq ",
    }
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], environment)
    try:
        site = share / "zsh/site-functions"
        setup = f"PS1='READY> '; fpath=({site} $fpath); autoload -U compinit; compinit -u -D\n"
        type_and_wait(terminal, setup, "READY> ")
        for typed, expected in asked.items():
            type_and_wait(terminal, typed, expected)
            # Ctrl-U: a new line.
            os.write(terminal, b"\x15")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def type_and_wait(terminal: int, typed: str, expected: str) -> None:
    os.write(terminal, typed.encode())
    shown, until = "", time.monotonic() + 30
    while expected not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x07", "", shown):
        left = until - time.monotonic()
        assert left > 0 and select.select([terminal], [], [], left)[0], f"{typed!r} shows {shown!r}"
        shown += os.read(terminal, 65536).decode(errors="replace")


@pytest.mark.needs("groff")
def test_every_command_has_a_man_page_without_warnings(share):
    pages = {path.stem: path for path in (share / "man/man1").iterdir()}
    assert set(pages) == {"exhume", *(f"exhume-{name}" for name in COMMANDS)}
    text = {}
    for name, path in pages.items():
        command = ["groff", "-man", "-Tutf8", "-ww", "-P-c", path]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert not done.stderr, name
        text[name] = re.sub(r"\s+", " ", re.sub(r".\x08", "", done.stdout))
    for name in COMMANDS:
        assert f"exhume-{name}(1)" in text["exhume"]
    for setting in SETTINGS:
        assert setting.variable in text["exhume"]
    common = {"--color", "-v", "--verbose", "--debug", "-h", "--help"}
    for command, flags in flags_by_command().items():
        page = text["-".join(command.split()[:2])]
        assert all(flag in page for flag in flags - common), command
    assert "exhume diagnose --at 03:14:07" in text["exhume-diagnose"]


def test_the_same_sources_give_the_same_files(share, monkeypatch):
    tool = load()
    assert tool.man_pages("") == {
        str(path.relative_to(share)): path.read_text() for path in sorted((share / "man").rglob("*.1"))
    }
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1780000000")
    assert ' 1 "2026-05-28" ' in tool.man_pages(tool._release_date())["man/man1/exhume.1"]


@pytest.mark.parametrize(
    ("text", "expected"), [(".SH x", "\\&.SH x"), ("a\\b", "a\\eb"), ("--at 'now'", "\\-\\-at \\(aqnow\\(aq")]
)
def test_no_text_is_a_request_to_roff(text, expected):
    assert load().roff(text) == expected
