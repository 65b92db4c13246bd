"""Questions that would take too long are refused with a sentence, before anything is read."""

from exhume.model.window import Window
from exhume.present.web.asked import refuse
from exhume.store.format.schema import UnreadableFile
from exhume.store.read.reader import count_rows
from exhume.store.read.recording import Recording

MOST_SAMPLES = 200_000_000
# Below so many segments no window holds too many samples; the ends of their files need not be looked at.
_FEW_SEGMENTS = 120


def check_samples(recording: Recording, window: Window, why: str, most: int = MOST_SAMPLES) -> None:
    """Raises a refusal where the window holds more samples than one answer may look at."""
    segments = recording.holding(window)
    if len(segments) <= _FEW_SEGMENTS:
        return
    counted = 0
    for segment in segments:
        try:
            counted += count_rows(segment, "samples")
        except UnreadableFile:
            continue
        if counted > most:
            raise refuse(413, f"{why}, and this time holds over {most:,}: choose a shorter one")
