"""The tests run in two parts: neither is left out, and no failure of either is lost."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PASSED, FAILED, INTERRUPTED, NONE_CHOSEN = 0, 1, 2, 5
# Writes its words down, a line each time, and ends with the number that the part is told to.
PYTEST = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/asked"
case "$*" in *"--part together"*) exit {together} ;; *"--part alone"*) exit {alone} ;; esac
exit 99
"""


def run(tree: Path, together: int, alone: int, *words: str) -> tuple[int, list[str], str]:
    """The exit code, what pytest was asked for, and the last line."""
    binaries = tree / ".venv/bin"
    binaries.mkdir(parents=True)
    (tree / "tools").mkdir()
    shutil.copy(ROOT / "tools/run-tests", tree / "tools/run-tests")
    for name, script in (("pytest", PYTEST.format(together=together, alone=alone)), ("python", "#!/bin/sh\n")):
        (binaries / name).write_text(script)
        (binaries / name).chmod(0o755)
    done = subprocess.run([tree / "tools/run-tests", *words], capture_output=True, text=True, check=False)
    return done.returncode, (binaries / "asked").read_text().splitlines(), (done.stdout.splitlines() or [""])[-1]


@pytest.mark.parametrize(
    ("together", "alone", "code"),
    [
        (PASSED, PASSED, PASSED),
        (FAILED, PASSED, FAILED),
        (PASSED, FAILED, FAILED),
        (FAILED, NONE_CHOSEN, FAILED),
        (NONE_CHOSEN, FAILED, FAILED),
        (PASSED, NONE_CHOSEN, PASSED),
        (NONE_CHOSEN, PASSED, PASSED),
        (NONE_CHOSEN, NONE_CHOSEN, NONE_CHOSEN),
    ],
)
def test_both_parts_run_and_a_failure_of_either_is_the_whole_ones(
    tmp_path: Path, together: int, alone: int, code: int
) -> None:
    words = {PASSED: "passed", FAILED: "FAILED", NONE_CHOSEN: "none chosen"}
    ended, asked, last = run(tmp_path, together, alone)
    assert (ended, len(asked)) == (code, 2)
    assert last == f"tests that run together: {words[together]}; tests that run alone: {words[alone]}"


def test_words_reach_both_parts(tmp_path: Path) -> None:
    _, asked, _ = run(tmp_path, PASSED, PASSED, "-k", "ring and not slow")
    assert [line.endswith(" -k ring and not slow") for line in asked] == [True, True]


def test_an_interrupted_first_part_ends_it(tmp_path: Path) -> None:
    ended, asked, _ = run(tmp_path, INTERRUPTED, PASSED)
    assert (ended, len(asked)) == (INTERRUPTED, 1)
