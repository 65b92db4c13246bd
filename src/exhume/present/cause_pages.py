"""The documentation pages of the causes (docs/causes), which are packaged with the web page for offline reading."""

from importlib.resources import files


def cause_page(cause: str) -> str | None:
    """The Markdown page of a cause; None if the cause has no page or the page was not built."""
    try:
        # Joining by name is safe: causes are identifiers from the catalogue, not paths.
        return files("exhume.present").joinpath("web", "static", "causes", f"{cause}.md").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
