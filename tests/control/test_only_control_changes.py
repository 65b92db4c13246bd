"""No package but control (and the lab, whose purpose it is) changes a node: a scan of the sources.

It looks for calls and names by which a process ends others, writes or removes files, mounts, swaps, or commands
systemd and container engines. What the other packages may do, to their own files and children, is listed with reasons.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src/exhume"
CHANGING = ("control", "lab")

KILLS = {"kill", "killpg", "terminate", "send_signal", "pidfd_send_signal"}
WRITES = {
    "write_text",
    "write_bytes",
    "truncate",
    "ftruncate",
    "symlink_to",
    "hardlink_to",
    "symlink",
    "mkfifo",
    "mknod",
}
REMOVES = {"unlink", "rmdir", "rmtree", "removedirs"}
NODE = {"mount", "umount", "umount2", "swapon", "swapoff", "sethostname", "reboot", "setns", "unshare"}
WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}
ORDERS = {
    "StopUnit",
    "StartUnit",
    "RestartUnit",
    "KillUnit",
    "ResetFailedUnit",
    "Reload",
    "daemon-reload",
    "reset-failed",
}
ORDERS |= {"POST", "PUT", "DELETE", "PATCH"}

# Package or file name -> what it may do, and why.
ALLOWED = {
    ("model", "process.py"): ({"write"}, "the autogroup of this process, the oom_score_adj of a child"),
    ("store", "*"): ({"write", "remove"}, "the recording is its own"),
    ("store", "seal_process.py"): ({"kill"}, "its own worker process"),
    ("store", "sealer.py"): ({"kill"}, "the same, when the recorder ends"),
    ("collect", "cgroup_trace.py"): ({"write", "remove"}, "a tracing instance of the recorder's own"),
    ("collect", "job_events.py"): ({"remove"}, "a socket of the recorder's own"),
    ("collect", "confine.py"): ({"write"}, "its own oom_score_adj"),
    ("collect", "file_reader.py"): ({"kill"}, "the recorder's own opener and parser processes"),
    ("collect", "opener_process.py"): ({"kill"}, "the same"),
    ("collect", "opener.py"): ({"kill"}, "the parser process that it started"),
    ("collect", "journal.py"): ({"kill"}, "journalctl, as its child"),
    ("interop", "files.py"): ({"write"}, "standard input, into the recording that an import makes"),
    ("interop", "timeline.py"): ({"write", "remove"}, "the recording that an import makes"),
    ("collect", "inventory.py"): ({"kill"}, "the process that takes an inventory, as its child"),
    ("fleet", "*"): ({"write", "remove"}, "the lake, the spool of a recording and the hub's directory"),
    ("fleet", "hub.py"): ({"order"}, "the method of the batches that it takes; it sends none"),
    ("notify", "child.py"): ({"kill"}, "its own children"),
    ("present", "bundles.py"): ({"remove"}, "its own copies of bundles"),
    ("present", "incidents.py"): ({"remove"}, "the same"),
    ("cli", "push_child.py"): ({"kill"}, "its own child"),
    ("notify", "post.py"): ({"order"}, "the request to the webhook"),
    ("present", "otlp.py"): ({"order"}, "the request to the collector"),
    ("present", "server.py"): ({"order"}, "the method of the events that it takes; it sends none"),
    ("cli", "page.py"): ({"kill"}, "itself"),
    ("cli", "*"): ({"write"}, "files that the user names for the output"),
    ("present", "*"): ({"kill"}, "its own worker processes"),
}


@cache
def changes_in(path: Path) -> list[tuple[int, str, str]]:
    """Line, kind and name of everything in a file that may change something outside of the process."""
    return list(_changes_in(path))


def _changes_in(path: Path) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for kind, names in (("kill", KILLS), ("write", WRITES), ("remove", REMOVES)):
                if name in names:
                    yield node.lineno, kind, name
            if name in NODE and "libc" in ast.dump(node.func):
                yield node.lineno, "node", name
            if name in ("open", "open_own") and _opens_for_writing(node):
                yield node.lineno, "write", "open"
        elif isinstance(node, ast.Constant) and node.value in ORDERS:
            yield node.lineno, "order", str(node.value)
        elif (
            isinstance(node, ast.JoinedStr)
            and isinstance(node.values[-1], ast.Constant)
            and node.values[-1].value == "Unit"
        ):
            yield node.lineno, "order", "…Unit"


def _opens_for_writing(call: ast.Call) -> bool:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    modes = [each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    flags = {each.attr for argument in arguments for each in ast.walk(argument) if isinstance(each, ast.Attribute)}
    return any(len(mode) <= 3 and set(mode) & set("wax+") for mode in modes) or bool(flags & WRITING_FLAGS)


def allowed(path: Path) -> set[str]:
    package = path.relative_to(SOURCE).parts[0]
    return {kind for name in (path.name, "*") for kind in ALLOWED.get((package, name), (set(), ""))[0]}


def sources() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] not in CHANGING]


@pytest.mark.slow
def test_only_control_and_the_lab_change_a_node():
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name} ({kind})"
        for path in sources()
        for line, kind, name in changes_in(path)
        if kind not in allowed(path)
    ]
    assert found == []


def test_nothing_but_what_others_are_allowed_is_listed():
    """A rule that nothing needs any more goes."""
    used = {(path.relative_to(SOURCE).parts[0], kind) for path in sources() for _, kind, _ in changes_in(path)}
    listed = {(package, kind) for (package, _), (kinds, _) in ALLOWED.items() for kind in kinds}
    assert listed <= used


@pytest.mark.parametrize("kind", ["write", "remove", "node", "order"])
def test_the_scan_sees_what_control_does(kind):
    assert any(kind == each for path in (SOURCE / "control").rglob("*.py") for _, each, _ in changes_in(path))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import os\nos.kill(1, 9)", "kill"),
        ("from pathlib import Path\nPath('/sys/fs/cgroup/x/memory.reclaim').write_text('1')", "write"),
        ("open('/proc/sys/vm/drop_caches', 'w')", "write"),
        ("import os\nos.open('/sys/x', os.O_WRONLY)", "write"),
        ("bus.call(Call(PATH, MANAGER, 'StopUnit', 'ss', ()))", "order"),
        ("f'{verb.capitalize()}Unit'", "order"),
        ("engine.exchange('POST', '/containers/x/stop')", "order"),
        ("_libc.swapoff(b'/swap')", "node"),
        ("from pathlib import Path\nPath('x').unlink()", "remove"),
    ],
)
def test_the_scan_can_fail(code, kind, tmp_path):
    file = tmp_path / "module.py"
    file.write_text(code)
    assert kind in {each for _, each, _ in changes_in(file)}
