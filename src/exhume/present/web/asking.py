"""What a request asks about: a stretch of time, cores, filters. Bad input becomes a sentence."""

from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Depends, Query, Request
from starlette.exceptions import HTTPException

from exhume.model.clock import MILLIS
from exhume.model.window import Window
from exhume.present.web.answering import Answering
from exhume.present.web.opened import Opened
from exhume.store.profile import ProfileFilter, check_stack_regex
from exhume.store.query import Recording

# Moments that a browser can name: its whole range of dates.
LAST_MS = 8_640_000_000_000_000
MOST_CELLS = 4000
MOST_CORES = 65_536
MOST_TEXT = 500
CORES = r"^(|[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*)$"

Moment = Annotated[int | None, Query(ge=0, le=LAST_MS, description="milliseconds of wall time since 1970")]
Text = Annotated[str | None, Query(max_length=MOST_TEXT)]
Cells = Annotated[int, Query(ge=1, le=MOST_CELLS, description="columns to pool the time into")]


async def opened(request: Request) -> Opened:
    """The recording of this server."""
    found: Opened = request.app.state.opened
    return found


Here = Annotated[Opened, Depends(opened)]


async def answering(request: Request) -> Answering:
    """What has answers worked out."""
    found: Answering = request.app.state.answering
    return found


Answers = Annotated[Answering, Depends(answering)]


def refuse(status: int, sentence: str) -> HTTPException:
    return HTTPException(status, sentence)


@dataclass(frozen=True, slots=True)
class Asking:
    """What a request says: plain values, which can be compared and sent to another process."""

    since: int | None
    until: int | None
    wanted: ProfileFilter

    def of(self, here: Opened) -> "Asked":
        """Raises RecordingError where there is no recording."""
        wanted = self.wanted
        if wanted.container is not None:
            wanted = replace(wanted, container_ids=here.containers_named(wanted.container))
        cpus = wanted.cpus
        return Asked(
            here,
            here.recording(),
            window_of(here, self.since, self.until),
            None if cpus is None else frozenset(cpus),
            wanted,
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """The recording, and the part of it that is asked about (clamped to what is recorded)."""

    opened: Opened
    recording: Recording
    window: Window
    cpus: frozenset[int] | None
    wanted: ProfileFilter

    @property
    def filtered(self) -> bool:
        wanted = self.wanted
        return wanted.by_process or wanted.by_stack or wanted.comm is not None


def window_of(here: Opened, since: int | None, until: int | None) -> Window:
    """A window in milliseconds, clamped; what is left out reaches to the ends of the recording."""
    span = here.span()
    first = span.since if since is None else since * MILLIS
    last = span.until if until is None else until * MILLIS
    # Moments beyond the recording may be larger than the store counts.
    first, last = (min(max(moment, span.since), span.until) for moment in (first, last))
    return Window(first, max(first, last))


async def asking(  # noqa: PLR0917
    since: Moment = None,
    until: Moment = None,
    cpus: Annotated[Text, Query(pattern=CORES, description="cores, such as 0,3-7; all where it is left out")] = None,
    comm: Annotated[Text, Query(description="only threads of this name")] = None,
    pid: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    container: Annotated[Text, Query(description="only containers whose id or name begins like this")] = None,
    pod: Annotated[Text, Query(description="only pods whose id begins like this")] = None,
    stack: Annotated[
        Text,
        Query(
            description="only stacks with a frame that this expression is found in",
            json_schema_extra={"format": "regex"},
        ),
    ] = None,
    kind: Annotated[str | None, Query(pattern="^(kernel|user)$", description="where the sample was taken")] = None,
) -> Asking:
    """The part of the recording that a request is about."""
    numbers = None if not cpus else core_numbers(cpus)
    if stack:
        check_stack_regex(stack)
    wanted = ProfileFilter(
        numbers, comm or None, pid, stack or None, container or None, pod or None, kind if kind else None
    )
    return Asking(since, until, wanted)


Question = Annotated[Asking, Depends(asking)]


def core_numbers(text: str) -> frozenset[int]:
    """`0,3-7` -> the numbers; those that no machine has are left out."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = sorted((min(int(first[:9]), MOST_CORES), min(int((last or first)[:9]), MOST_CORES)))
        found.update(range(low, min(high + 1, MOST_CORES)))
    return frozenset(found)


def ms(wall: int) -> int:
    return wall // MILLIS
