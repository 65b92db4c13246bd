"""The page becomes part of whatever is built: a wheel, a source archive, an installation by link."""

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
