"""Forks the processes that answer once all that they work with is loaded, so that it is in memory once for all."""

import gc

from exhume.present.web import answers_cell, answers_cores, answers_diagnosis, answers_events, answers_stacks
from exhume.present.web.opened import Opened

ANSWERS = (answers_cell, answers_cores, answers_diagnosis, answers_events, answers_stacks)


def start(opened: Opened) -> None:
    """To be called while there are no other threads."""
    # What is loaded stays: no process has to look through it for garbage, nor copy it by doing so.
    gc.freeze()
    opened.start_readers()
