"""The documentation as a site (mkdocs.yml): pages that are not in docs/, and a check of what was built.

    tools/docs_site.py SITE    check a built site: every link leads somewhere, and nothing is loaded from elsewhere

As a hook of mkdocs it adds SECURITY.md and CHANGELOG.md, and reads the documents as CommonMark.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
# Pages of the site that are elsewhere in the repository.
ELSEWHERE = {"threat-model.md": "SECURITY.md", "changelog.md": "CHANGELOG.md"}
# The JSON Schemas, which a document links to, are part of the site.
SCHEMAS = "src/exhume/present/json_schemas"
# What a page loads, rather than links to.
LOADED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}
# In styles and scripts: an address that is loaded, not one in a comment or a licence.
LOADING = re.compile(rb"""(?:url\(|@import|importScripts\(|fetch\(|import\()\s*["']?(?:https?:)?//[\w.-]+""")


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs: the pages from elsewhere, with links as they are seen from docs/."""
    from mkdocs.structure.files import File

    for name, source in ELSEWHERE.items():
        files.append(File.generated(config, name, content=seen_from_docs((ROOT / source).read_text())))
    for schema in sorted((ROOT / SCHEMAS).glob("*.json")):
        files.append(File.generated(config, f"json_schemas/{schema.name}", content=schema.read_text()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs: the documents are CommonMark, which its parser is not."""
    return for_python_markdown(markdown.replace(f"../{SCHEMAS}/", "json_schemas/"))


def for_python_markdown(text: str) -> str:
    """A list or table may follow a paragraph without an empty line, and what belongs to a list item may be indented by
    two or three spaces: neither is so for Python-Markdown."""
    lines: list[str] = []
    fenced = in_list = False
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        begins = re.match(r"- |1\. |\|", line) is not None
        # An item of a list, a row of a table, or what belongs to one.
        goes_on = re.match(r"\s+\S|- |\d+\. |\|", before) is not None
        if begins and not fenced and before.strip() and not before.startswith("#") and not goes_on:
            lines.append("")
        item = re.match(r"- |\d+\. ", line) is not None
        in_list = item or (in_list and (not line.strip() or line.startswith(" ") or bool(before.strip())))
        lines.append(f"    {line.lstrip()}" if in_list and re.match(r" {2,3}\S", line) else line)
        fenced ^= line.lstrip().startswith("```")
    return "\n".join(lines)


def seen_from_docs(text: str) -> str:
    """A page of the root directory with its links as docs/ has them; what is not in docs/ is no link."""
    names = {source: name for name, source in ELSEWHERE.items()}
    text = re.sub(r"\]\(docs/([^)]*)\)", r"](\1)", text)
    text = re.sub(
        r"\]\((\w+\.md)(#[^)]*)?\)", lambda m: f"]({names[m[1]]}{m[2] or ''})" if m[1] in names else m[0], text
    )
    return re.sub(r"\[([^]]+)\]\((?:README|CONTRIBUTING|bench/[\w.]+|LICENSE)[^)]*\)", r"\1", text)


class Page(HTMLParser):
    """What a page links to and loads, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places |= {value for name in ("id", "name") if (value := found.get(name))}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        # A canonical or alternate address is not loaded.
        if found.get(LOADED.get(tag, "")) and not (tag == "link" and found.get("rel") in ("canonical", "alternate")):
            self.loads.append(str(found[LOADED[tag]]))


def problems(site: Path) -> list[str]:
    """Dead links, dead places, and what is loaded from another host."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    found.append(f"{name} loads {link}")
                continue
            # 404.html is shown at any address: its links begin with a slash.
            at = (
                site / unquote(parts.path).lstrip("/")
                if parts.path.startswith("/")
                else path.parent / unquote(parts.path)
            )
            target = path if not parts.path else at.resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                found.append(f"{name}: {link} is dead")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                found.append(f"{name}: {link} has no such place")
    for path in sorted(each for kind in ("css", "js") for each in site.rglob(f"*.{kind}")):
        found += [f"{path.relative_to(site)} loads {each.decode()}" for each in LOADING.findall(path.read_bytes())]
    return found


def main(argv: list[str]) -> int:
    if len(argv) != 1 or not (Path(argv[0]) / "index.html").is_file():
        print(__doc__, file=sys.stderr)
        return 2
    site = Path(argv[0]).resolve()
    found = problems(site)
    print("\n".join(found) or f"{len(list(site.rglob('*.html')))} pages, no dead links, nothing from elsewhere")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
