"""The page becomes part of whatever is built: a wheel, a source archive, an installation by link. Man pages and
completions (`make share`) become part of a wheel, where they were generated."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import page


class PageHook(BuildHookInterface[Any]):
    """Builds the page before anything is packed."""

    def dependencies(self) -> list[str]:
        """Node comes as a Python package, and only where it is needed."""
        package = page.needed_package(Path(self.root))
        return [package] if package else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, or stop with the one sentence that says why not."""
        try:
            page.build(Path(self.root))
        except page.PageError as error:
            sys.exit(f"error: {error}")
        # They are generated from the parser, which needs all dependencies of the program: not in every build.
        share = Path(self.root) / "share"
        if self.target_name == "wheel" and version == "standard":
            files = sorted(path for path in share.rglob("[!.]*") if path.is_file())
            build_data["shared_data"] = {str(file): f"share/{file.relative_to(share)}" for file in files}
