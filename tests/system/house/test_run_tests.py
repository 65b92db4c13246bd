"""tools/run-tests runs all parts, and fails if any does; a few failures are judged by a second run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PASSED, FAILED, INTERRUPTED, NO_TESTS = 0, 1, 2, 5
# Appends its arguments to a file, a line per call, and exits with the code for that part. Keeps the failures of
# the first.
PYTEST = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
case "$*" in
    *"-m not (paced or alone or long or vm)")
        mkdir -p .pytest_cache/v/cache
        for number in $(seq "${{FAILURES:-0}}"); do
            echo "  \\"tests/test_a.py::test_$number\\": true," >> .pytest_cache/v/cache/lastfailed
        done
        exit {together} ;;
    *"-m not (alone or long or vm)") exit "$AGAIN" ;;
    *"-m paced and not (alone or long or vm)") exit {paced} ;;
    *"--last-failed "*"-m alone and not (long or vm)") exit "$AGAIN" ;;
    *"-m alone and not (long or vm)")
        if [ -n "${{STOLEN:-}}" ]; then
            echo "cpu 0 0 0 $((1000 - STOLEN)) 0 0 0 $STOLEN 0 0" > "$STAT"
            mkdir -p .pytest_cache/v/cache
            echo '  "tests/test_a.py::test_alone": true,' >> .pytest_cache/v/cache/lastfailed
        fi
        exit {alone} ;;
    *"-m not (root or "*) exit 0 ;;
esac
exit 99
"""


def run(tree: Path, together: int, paced: int, alone: int, *args: str) -> tuple[int, list[str]]:
    """The exit code, and the arguments of each call of pytest."""
    binaries = tree / ".venv/bin"
    binaries.mkdir(parents=True)
    (tree / "tools").mkdir()
    shutil.copy(ROOT / "tools/run-tests", tree / "tools/run-tests")
    scripts = {"pytest": PYTEST.format(together=together, paced=paced, alone=alone), "python": "#!/bin/sh\n"}
    for name, script in scripts.items():
        (binaries / name).write_text(script)
        (binaries / name).chmod(0o755)
    # A machine from which nothing is taken, unless the test says otherwise.
    (tree / "stat").write_text("cpu 0 0 0 0 0 0 0 0 0 0\n")
    done = subprocess.run(
        [tree / "tools/run-tests", *args], check=False, env={**os.environ, "STAT": str(tree / "stat")}
    )
    return done.returncode, (binaries / "calls").read_text().splitlines()


@pytest.mark.parametrize(
    ("together", "paced", "alone", "code"),
    [
        (PASSED, PASSED, PASSED, PASSED),
        (FAILED, PASSED, PASSED, FAILED),
        (PASSED, FAILED, PASSED, FAILED),
        (PASSED, PASSED, FAILED, FAILED),
        (FAILED, NO_TESTS, NO_TESTS, FAILED),
        (NO_TESTS, FAILED, NO_TESTS, FAILED),
        (NO_TESTS, NO_TESTS, FAILED, FAILED),
        (PASSED, NO_TESTS, NO_TESTS, PASSED),
        (NO_TESTS, PASSED, NO_TESTS, PASSED),
        (NO_TESTS, NO_TESTS, PASSED, PASSED),
        (NO_TESTS, NO_TESTS, NO_TESTS, NO_TESTS),
    ],
)
def test_all_parts_run_and_any_can_fail_the_whole(
    tmp_path: Path, together: int, paced: int, alone: int, code: int
) -> None:
    exit_code, calls = run(tmp_path, together, paced, alone)
    assert (exit_code, len(calls)) == (code, 3)


@pytest.mark.parametrize(
    ("failures", "codes", "expected"),
    [
        (1, (PASSED, PASSED), (PASSED, 4)),
        (4, (PASSED, PASSED), (PASSED, 4)),
        (4, (FAILED, PASSED), (FAILED, 4)),
        (4, (NO_TESTS, NO_TESTS), (NO_TESTS, 4)),
        (1, (PASSED, FAILED), (FAILED, 4)),
        (5, (PASSED, PASSED), (FAILED, 3)),
        (0, (PASSED, PASSED), (FAILED, 3)),
    ],
)
def test_a_few_failures_are_judged_by_a_second_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, codes: tuple[int, int], expected: tuple[int, int]
) -> None:
    """Codes of the second run and of the tests that run alone; the code of the whole and the calls of pytest."""
    again, alone = codes
    monkeypatch.setenv("FAILURES", str(failures))
    monkeypatch.setenv("AGAIN", str(again))
    exit_code, made = run(tmp_path, FAILED, PASSED, alone)
    assert (exit_code, len(made)) == expected
    assert ["--last-failed " in call for call in made].count(True) == len(made) - 3


@pytest.mark.parametrize(
    ("stolen", "again", "expected"),
    [(50, PASSED, (PASSED, 4)), (50, FAILED, (FAILED, 4)), (9, PASSED, (FAILED, 3))],
    ids=["a disturbed machine", "a bug", "a quiet machine"],
)
def test_what_failed_alone_is_judged_again_only_where_the_hypervisor_took_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stolen: int, again: int, expected: tuple[int, int]
) -> None:
    """Of 1,000 ticks."""
    monkeypatch.setenv("STOLEN", str(stolen))
    monkeypatch.setenv("AGAIN", str(again))
    exit_code, made = run(tmp_path, PASSED, PASSED, FAILED)
    assert (exit_code, len(made)) == expected


def test_failures_of_an_earlier_run_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGAIN", str(PASSED))
    (tmp_path / ".pytest_cache/v/cache").mkdir(parents=True)
    (tmp_path / ".pytest_cache/v/cache/lastfailed").write_text('  "tests/test_a.py::test_b": true\n')
    exit_code, made = run(tmp_path, FAILED, PASSED, PASSED)
    assert (exit_code, len(made)) == (FAILED, 3)


def test_arguments_are_passed_to_all_parts(tmp_path: Path) -> None:
    _, calls = run(tmp_path, PASSED, PASSED, PASSED, "-k", "ring and not slow")
    assert ["-k ring and not slow -m" in call for call in calls] == [True, True, True]


def test_an_interrupted_first_part_ends_the_run(tmp_path: Path) -> None:
    exit_code, calls = run(tmp_path, INTERRUPTED, PASSED, PASSED)
    assert (exit_code, len(calls)) == (INTERRUPTED, 1)


def test_the_unit_tests_are_one_part(tmp_path: Path) -> None:
    exit_code, calls = run(tmp_path, FAILED, FAILED, FAILED, "--unit", "-x")
    assert (exit_code, len(calls)) == (PASSED, 1)
    assert " -x -m " in calls[0]
