"""The causes, grouped by kernel subsystem: each takes a case and returns a finding or the reason why it was ruled out.

A function with `@examines(CAUSE)` in any module of this package is the examiner of that entry of causes.toml. The
package is searched for them, so a new cause is registered by its file alone. Causes don't import each other.
"""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from exhume.diagnose.catalogue import Cause, catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.model.finding import RuledOut

Examine = Callable[[Case], Found | RuledOut]
Body = Callable[[EvidenceBuilder, Case], Found | RuledOut]

_EXAMINERS: dict[str, Examine] = {}


def examines(cause: Cause) -> Callable[[Body], Body]:
    """Register a function as the examiner of a cause."""

    def register(body: Body) -> Body:
        if cause.id in _EXAMINERS:
            raise ValueError(f"{cause.id} has two examiners")
        _EXAMINERS[cause.id] = lambda case: body(EvidenceBuilder(case, cause), case)
        return body

    return register


@cache
def examiners() -> dict[str, Examine]:
    """The examiner of every cause, in the order of the catalogue."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return {cause_id: _EXAMINERS[cause_id] for cause_id in catalogue()}
