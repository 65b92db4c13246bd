"""How far answers are that take long, for whoever waits for them."""

from typing import Annotated

from fastapi import APIRouter, Query

from exhume.present.web.asking import Answers
from exhume.present.web.shapes import Problem, ProgressShape, Reading

router = APIRouter(tags=["live"], responses={code: {"model": Problem} for code in (403, 422)})


@router.get("/progress")
async def progress(
    answers: Answers,
    asks: Annotated[
        str,
        Query(
            max_length=1000,
            description="names, divided by commas, that questions were given by the header X-Exhume-Ask",
        ),
    ] = "",
) -> ProgressShape:
    """How many segments were read for questions that are being answered, and how many there are to read (0 where that
    is not known). Questions that are answered, or were never asked, are left out."""
    found = answers.progress(asks.split(","))
    return ProgressShape(asks={name: Reading(done=done, of=of) for name, (done, of) in found.items()})
