"""The pages of the causes (docs/causes): built into the package next to the page, so that they are read offline."""

from importlib.resources import files


def cause_page(cause: str) -> str | None:
    """The Markdown of a cause's page; None where there is none, or where the page was not built."""
    try:
        # Joined by name, not by path: a cause is a word of the catalogue.
        return files("exhume.present").joinpath("web", "static", "causes", f"{cause}.md").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
