"""What is asked about, in plain values: they can be compared, and sent to another process. Nothing here needs the
web's framework, so that the processes that answer are forked before it is loaded."""

from dataclasses import dataclass, replace

from starlette.exceptions import HTTPException

from exhume.model.clock import MILLIS
from exhume.model.window import Window
from exhume.present.web.opened import Opened
from exhume.store.read.profile import ProfileFilter
from exhume.store.read.recording import Recording

# Moments that a browser can name: its whole range of dates.
LAST_MS = 8_640_000_000_000_000
MOST_CORES = 65_536


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
