"""The recording as a whole."""

from fastapi import APIRouter

from exhume.present.web.answers_recording import about
from exhume.present.web.asking import Here
from exhume.present.web.shapes import Problem, RecordingShape

router = APIRouter(tags=["recording"], responses={403: {"model": Problem}})


@router.get("/recording")
def recording(here: Here) -> RecordingShape:
    """What is recorded, from where, and what was lost; also while nothing is recorded yet."""
    return about(here)
