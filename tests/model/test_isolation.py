"""Child interpreters and programs: what they may load and where they are found."""

import ast
import os
import stat
from pathlib import Path

import pytest

import exhume
from exhume.model.isolation import (
    DEFAULT_PATH,
    isolate,
    isolated_environment,
    isolated_python,
    isolated_script,
    safe_path,
)

SOURCE = Path(exhume.__file__).parent
HELPER = SOURCE / "model" / "isolation.py"


def test_an_environment_without_code_of_others():
    given = {
        "PYTHONSTARTUP": "/x.py",
        "PYTHONINSPECT": "1",
        "PYTHONUSERBASE": "/home/x",
        "PYTHONPATH": ":.:/opt/exhume:relative",
        "PYTHONHOME": "here",
        "PATH": ".::/usr/bin",
        "LANG": "C",
    }
    cleaned = isolated_environment(given)
    assert cleaned == {
        "PYTHONPATH": "/opt/exhume",
        "PYTHONSAFEPATH": "1",
        "PYTHONNOUSERSITE": "1",
        "PATH": "/usr/bin",
        "LANG": "C",
    }
    isolate(given)
    assert given == cleaned


def test_commands_of_children_are_isolated():
    assert isolated_python("exhume.cli.page", "a", Path("b"))[1:] == ["-P", "-s", "-m", "exhume.cli.page", "a", "b"]
    assert isolated_script(Path("/x.py"), "a")[1:] == ["-I", "-S", "/x.py", "a"]


@pytest.mark.root
def test_root_runs_no_program_from_where_another_user_can_write(tmp_path):
    # pytest's own directories are 0700 and root's, below /tmp, which is sticky.
    mine, others, open_to_all = (tmp_path / name for name in ("mine", "others", "open"))
    for each in (mine, others / "bin", open_to_all):
        each.mkdir(parents=True)
    os.chown(others, 65534, 65534)
    open_to_all.chmod(0o777 | stat.S_ISVTX)
    path = os.pathsep.join(map(str, (mine, others, others / "bin", open_to_all, tmp_path / "absent", "bin", "")))
    assert safe_path(path) == str(mine)
    assert safe_path(path, user=1000) == os.pathsep.join(path.split(os.pathsep)[:5])
    assert safe_path(".:bin:") == DEFAULT_PATH


def test_only_the_helper_names_the_interpreter():
    """A child that is started in another way could load modules from the current directory."""
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        # To parse all takes a second.
        if path != HELPER and "executable" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if names_the_interpreter(node)
    ]
    assert found == []


def names_the_interpreter(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("executable", "_base_executable") and ast.unparse(node.value) == "sys"
    return isinstance(node, ast.ImportFrom) and node.module == "sys" and "executable" in [x.name for x in node.names]
