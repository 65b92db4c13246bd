"""The page draws with the same colours as the terminal and the files."""

import re
from pathlib import Path

from exhume.present import palette

WEB = Path(__file__).resolve().parents[3] / "web" / "src"


def test_the_page_has_the_colours_of_the_palette():
    theme = (WEB / "theme.ts").read_text()
    states = re.findall(r'name: "(\w+)", hue: "(#\w{6})", meaning: "([^"]+)"', theme)
    assert states == [(state.name, state.hue, state.meaning) for state in palette.STATES]
    assert re.search(r'GREW = "(#\w{6})"', theme)[1] == palette.GREW
    assert re.search(r'SHRANK = "(#\w{6})"', theme)[1] == palette.SHRANK
    assert palette.UNCHANGED in theme


def test_its_style_sheet_too():
    sheet = (WEB / "styles/base.css").read_text()
    for state in palette.STATES:
        assert f"--{state.name}: {state.hue};" in sheet
