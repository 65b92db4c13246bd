"""What a request asks about: a stretch of time, cores, filters. Bad input becomes a sentence."""

from typing import Annotated

from fastapi import Depends, Query, Request

from exhume.present.web.answering import Answering
from exhume.present.web.asked import LAST_MS, Asking, core_numbers
from exhume.present.web.opened import Opened
from exhume.store.read.profile import ProfileFilter, check_stack_regex

MOST_CELLS = 4000
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


async def asking(  # noqa: PLR0917
    since: Moment = None,
    until: Moment = None,
    cpus: Annotated[Text, Query(pattern=CORES, description="cores, such as 0,3-7; all where it is left out")] = None,
    comm: Annotated[Text, Query(description="only threads of this name")] = None,
    pid: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    container: Annotated[Text, Query(description="only containers whose id or name begins like this")] = None,
    pod: Annotated[Text, Query(description="only pods whose id, namespace/name or name begins like this")] = None,
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
