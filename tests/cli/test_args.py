"""Help and parsing: fits the terminal, and guesses what was meant."""

import argparse

import pytest

from exhume.cli.args import Parser, log_target, recorder_settings, value_of
from exhume.cli.main import COMMANDS, main, parser_for
from exhume.model.errors import UsageError
from exhume.model.settings import COLOR, LogTarget, RecorderSettings


def parsers(parser, name="exhume"):
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each, command in action.choices.items():
                yield from parsers(command, f"{name} {each}")


PARSERS = dict(parsers(parser_for(list(COMMANDS))))


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("name", PARSERS)
def test_help_fits_the_terminal(name, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    text = PARSERS[name].format_help()
    longest = max(text.splitlines(), key=len)
    # An example is a line to copy: it is broken at blanks, never inside an argument.
    assert len(longest) <= min(width, 100) or " " not in longest.strip()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_two_or_three_examples(name):
    assert 2 <= len(COMMANDS[name].examples) <= 3


@pytest.mark.parametrize(
    ("args", "meant"),
    [(("diagnos",), "diagnose"), (("recrod",), "record"), (("lab", "lst"), "list"), (("info", "--jsno"), "--json")],
)
def test_a_typing_error_gets_a_suggestion(args, meant):
    with pytest.raises(UsageError, match=f"did you mean {meant}\\?"):
        parser_for(args[:1]).parse_args(args)


def test_something_else_gets_the_choices():
    with pytest.raises(UsageError, match="record, doctor, diagnose"):
        parser_for([]).parse_args(["xyzzy"])


@pytest.mark.parametrize(
    ("args", "remedy"),
    [
        (("--listen", "127.0.0.1:8421"), "set EXHUME_LISTEN"),
        (("--dir=/tmp/recording",), "set EXHUME_DIR"),
        (("--dir", "/tmp/recording", "diagnose"), "exhume diagnose --dir"),
    ],
)
def test_a_flag_before_its_command_is_not_taken_for_one(args, remedy):
    with pytest.raises(UsageError, match=remedy):
        main(args)


@pytest.mark.parametrize("args", [("--color", "never", "info"), ("info", "--color", "never")])
def test_common_options_stand_before_or_after_the_command(args):
    assert value_of(parser_for(["info"]).parse_args(args), COLOR) == "never"


@pytest.mark.parametrize("name", [name for name in PARSERS if name not in ("exhume fix", "exhume lab")])
def test_every_command_has_the_common_options(name):
    flags = set(PARSERS[name]._option_string_actions)
    assert {"--help", "--color", "--verbose", "-v", "--debug"} <= flags


@pytest.mark.parametrize(
    ("args", "variable", "target"),
    [
        ((), "", LogTarget("warning")),
        (("-v",), "", LogTarget("info")),
        (("--debug",), "error", LogTarget("debug")),
        ((), "info", LogTarget("info")),
    ],
)
def test_flags_of_the_log_win_over_the_variable(args, variable, target, monkeypatch):
    monkeypatch.setenv("EXHUME_LOG", variable)
    for order in ((*args, "info"), ("info", *args)):
        assert log_target(parser_for(["info"]).parse_args(order)) == target


def test_recorder_settings_are_typed(monkeypatch, tmp_path):
    monkeypatch.setenv("EXHUME_RATE", "49")
    args = ["record", "--dir", str(tmp_path), "--for", "2s", "--max-size", "none", "--max-age", "1h"]
    assert recorder_settings(parser_for(["record"]).parse_args(args)) == RecorderSettings(
        directory=tmp_path,
        duration_ns=2 * 10**9,
        rate_hz=49,
        max_bytes=None,
        max_age_ns=3600 * 10**9,
        cpu_budget=0.08,
        memory_budget=150 << 20,
    )
    # Without a command there are no flags: all comes from the environment.
    assert recorder_settings(parser_for([]).parse_args([])).rate_hz == 49


def test_paragraphs_are_filled_and_tables_kept():
    parser = Parser(prog="x", description="One\ntwo.\n\nlist:\n  a   alpha\n  b   beta\n")
    assert "One two.\n\nlist:\n  a   alpha\n  b   beta\n" in parser.format_help()
