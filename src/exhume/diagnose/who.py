"""Processes and cgroups as a sentence names them."""

from exhume.model.finding import Culprit


def process_words(culprit: Culprit) -> str:
    """The process of a culprit: its name and number, its name alone where several have it, or that they are many."""
    if culprit.comm is None:
        return "many processes"
    return culprit.comm if culprit.pid is None else f"{culprit.comm} (pid {culprit.pid})"
