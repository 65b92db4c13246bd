"""Words for which there is a standard term don't appear in the sources."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PLACES = ("src", "web/src")
BUILT = ROOT / "src/exhume/present/web/static", ROOT / "src/exhume/present/web/report"
TEXT = {".py", ".toml", ".md", ".proto", ".c", ".html", ".css", ".ts", ".tsx", ".json", ".sh", ".service"}
AVOIDED = re.compile(r"(?<![a-z])(told|whoever|anew)(?![a-z])", re.IGNORECASE)


def test_standard_terms_are_used():
    files = [
        path
        for place in PLACES
        for path in sorted((ROOT / place).rglob("*"))
        if path.suffix in TEXT and not any(path.is_relative_to(folder) for folder in BUILT)
    ]
    assert len(files) > 300
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if AVOIDED.search(line)
    ]
    assert not found, "\n".join(found)
