"""The documentation as a site: every page is in its navigation, and the check of a built one notices what is wrong.

`make test` builds the whole site, strictly, next to the linters.
"""

import importlib.util
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


def load():
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "tools/docs_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = load()


def pages_in(nav) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in pages_in(part)]


def test_every_page_is_in_the_navigation_once():
    named = pages_in(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    there = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert len(named) == len(set(named))
    assert set(named) == there | set(tool.ELSEWHERE)


def test_nothing_is_asked_of_other_hosts_by_the_settings():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert settings["theme"]["font"] is False
    assert "search" in settings["plugins"]
    assert "analytics" not in settings["extra"]


def test_pages_from_elsewhere_have_links_as_docs_has_them():
    text = "[a](docs/json.md#x) [b](CHANGELOG.md) [c](SECURITY.md#y) [d](README.md) [e](https://x.org/) [f](bench/R.md)"
    assert tool.seen_from_docs(text) == (
        "[a](json.md#x) [b](changelog.md) [c](threat-model.md#y) d [e](https://x.org/) f"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Three forms:\n- a\n- b", "Three forms:\n\n- a\n- b"),
        ("Do:\n1. a\n2. b", "Do:\n\n1. a\n2. b"),
        ("0640 and\n0600. So", "0640 and\n0600. So"),
        ("A table\n| a |\n|---|", "A table\n\n| a |\n|---|"),
        ("## Title\n- a\n  goes on\n  - inner", "## Title\n- a\n    goes on\n    - inner"),
        ("```\nx\n- y\n```", "```\nx\n- y\n```"),
        ("- a\n\nText\n  x", "- a\n\nText\n  x"),
    ],
)
def test_documents_are_read_as_commonmark(text, expected):
    assert tool.for_python_markdown(text) == expected


GOOD = (
    '<html><body id="top"><a href="other.html#place">x</a><a href="https://x.org/">y</a><img src="a.png"></body></html>'
)


@pytest.fixture
def site(tmp_path) -> Path:
    (tmp_path / "index.html").write_text(GOOD)
    (tmp_path / "other.html").write_text('<h2 id="place">z</h2><a href="index.html">back</a><a href="#place">here</a>')
    (tmp_path / "404.html").write_text('<a href="/index.html">home</a>')
    (tmp_path / "a.png").touch()
    (tmp_path / "style.css").write_text("/* https://example.org */ a { background: url(data:image/png;base64,AA) }")
    return tmp_path


def test_a_good_site_has_no_problems(site, capsys):
    assert tool.main([str(site)]) == 0
    assert capsys.readouterr().out.startswith("3 pages, no dead links")


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("index.html", '<a href="gone.html">x</a>', "index.html: gone.html is dead"),
        ("index.html", '<a href="other.html#gone">x</a>', "index.html: other.html#gone has no such place"),
        ("index.html", '<img src="gone.png">', "index.html: gone.png is dead"),
        ("index.html", '<script src="https://x.org/a.js"></script>', "index.html loads https://x.org/a.js"),
        ("index.html", '<link rel="stylesheet" href="//x.org/a.css">', "index.html loads //x.org/a.css"),
        ("style.css", "@import 'https://x.org/font.css'", "style.css loads @import 'https://x.org"),
        ("app.js", "fetch('https://x.org/data')", "app.js loads fetch('https://x.org"),
    ],
)
def test_what_is_wrong_is_named(site, capsys, file, text, problem):
    (site / file).write_text(text)
    assert tool.main([str(site)]) == 1
    assert problem in capsys.readouterr().out


def test_what_is_no_site_is_refused(tmp_path):
    assert tool.main([str(tmp_path)]) == 2
