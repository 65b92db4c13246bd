"""Tests are where their subject is."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "src/exhume"
TESTS = ROOT / "tests"
# Suites that cut across packages, tests of the benchmarks, and recordings that tests of the diagnosis read.
WITHOUT_COUNTERPART = {"system", "bench", "diagnose/incidents"}


def folders_with_modules(top: Path) -> list[Path]:
    return sorted({path.parent for path in top.rglob("*.py")})


def test_tests_mirror_the_packages():
    folders = [folder.relative_to(TESTS) for folder in folders_with_modules(TESTS)]
    checked = [
        folder for folder in folders if not {str(each) for each in (folder, *folder.parents)} & WITHOUT_COUNTERPART
    ]
    assert len(checked) > 10
    assert not [str(folder) for folder in checked if not (PACKAGE / folder).is_dir()]
