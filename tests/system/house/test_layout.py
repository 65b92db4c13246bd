"""Folders stay small enough to read, and tests are where their subject is."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "src/exhume"
TESTS = ROOT / "tests"
MOST_MODULES = 18
# Suites that cut across packages, tests of the benchmarks, and recordings that tests of the diagnosis read.
WITHOUT_COUNTERPART = {"system", "bench", "diagnose/incidents"}


def folders_with_modules(top: Path) -> list[Path]:
    return sorted({path.parent for path in top.rglob("*.py")})


def test_no_folder_has_too_many_modules():
    folders = folders_with_modules(PACKAGE)
    assert len(folders) > 10
    sizes = {folder: len([path for path in folder.glob("*.py") if path.stem != "__init__"]) for folder in folders}
    assert not {str(folder.relative_to(ROOT)): size for folder, size in sizes.items() if size > MOST_MODULES}


def test_tests_mirror_the_packages():
    """A folder of tests belongs to a package, or to a module that has several files of tests."""
    folders = [folder.relative_to(TESTS) for folder in folders_with_modules(TESTS)]
    checked = [
        folder for folder in folders if not {str(each) for each in (folder, *folder.parents)} & WITHOUT_COUNTERPART
    ]
    assert len(checked) > 10
    mirrored = [PACKAGE / folder for folder in checked]
    assert not [str(each) for each in mirrored if not (each.is_dir() or each.with_suffix(".py").is_file())]
