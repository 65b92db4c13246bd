"""What the documents print of the demo's recording is what the program prints."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.synthetic import synthetic_recording

from exhume.cli.commands.demo import CORES, HOURS, SEED

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Where the documents have the recording.
PLACES = ("/tmp/incident", "incident")
FENCED = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A line of a block that stands for others.
CUT = "…"


def outputs_of(page: str) -> list[tuple[list[str], list[str]]]:
    """The commands on that recording whose output a page has, with the lines of it."""
    blocks = [found[1].splitlines() for found in FENCED.finditer((DOCS / page).read_text())]
    shown = [(shlex.split(first.removeprefix("$ exhume ")), rest) for first, *rest in blocks if first.startswith("$ ")]
    return [(args, rest) for args, rest in shown if set(PLACES) & set(args)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_recording(tmp_path_factory, cores=CORES, minutes=HOURS * 60, seed=SEED).directory


@pytest.mark.parametrize(("page", "outputs"), [("tutorial.md", 2), ("incident.md", 1)])
def test_every_output_of_a_page_is_printed(exhume: Callable, demo: Path, page: str, outputs: int):
    shown = outputs_of(page)
    assert len(shown) == outputs
    for args, lines in shown:
        printed = exhume(*(str(demo) if each in PLACES else each for each in args), check=False).stdout.splitlines()
        upto = lines.index(CUT) if CUT in lines else len(printed)
        assert [line.rstrip() for line in printed[:upto]] == lines[:upto]


def test_the_log_lines_of_the_story_are_recorded(exhume: Callable, demo: Path):
    (block,) = [
        found[1] for found in FENCED.finditer((DOCS / "incident.md").read_text()) if found[1].startswith("ena ")
    ]
    printed = exhume("events", "--dir", str(demo)).stdout
    assert all(line in printed for line in block.splitlines())
