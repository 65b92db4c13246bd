"""Words for which there is a standard term appear neither in the sources nor in the documents."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PLACES = ("src", "web/src", "docs", "tests", "bench", "tools", "README.md", "CONTRIBUTING.md", "SECURITY.md")
BUILT = ROOT / "src/exhume/present/web/static", ROOT / "src/exhume/present/web/report"
TEXT = {".py", ".toml", ".md", ".proto", ".c", ".html", ".css", ".ts", ".tsx", ".json", ".sh", ".service"}
AVOIDED = re.compile(r"(?<![a-z])(told|whoever|anew|in vain|by lot)(?![a-z])", re.IGNORECASE)


def test_standard_terms_are_used():
    found = [path for place in PLACES for path in ((ROOT / place), *sorted((ROOT / place).rglob("*")))]
    files = [
        path
        for path in found
        if path.is_file()
        and path.suffix in TEXT
        and path != Path(__file__)
        and not any(path.is_relative_to(folder) for folder in BUILT)
    ]
    assert len(files) > 1000
    used = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if AVOIDED.search(line)
    ]
    assert not used, "\n".join(used)
