"""Stopping a unit and waiting for that: as long as the unit itself may take, and no longer than somebody wants to wait
for one that may take for ever."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from exhume.collect.systemd.bus import BusSilent
from exhume.model.stop import Stop
from exhume.remedy.services.controls import ActionFailed, UnitControl

# What crash-loops is now and then on its way down.
STAYS_UP = ("active", "activating", "reloading", "refreshing")
# One that is on its way down ran; but unless it is started, it is down in a moment.
RUNS = (*STAYS_UP, "deactivating")
# systemd kills what is late; a slow node needs a while for that, too.
MARGIN_S = 30.0
# What a unit gets by systemd's default, where it can't be told.
_USUAL_S = 90.0
# A unit without a limit may take for ever: this is the most that is waited for it.
LONGEST_S = 600.0
# Who asks for an end gets it, but not in the middle of a stop that is about to be over.
_GRACE_S = 5.0


def _nobody(name: str, waited: float, limit: float) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a unit that has no limit of its own, who is told about each second, and who may end it."""

    longest_s: float = LONGEST_S
    tell: Callable[[str, float, float], None] = _nobody
    stop: Stop | None = None

    def limit(self, own: Iterable[str]) -> tuple[float, str]:
        """The seconds for units that say of themselves how long they take (`infinity`: for ever), and why so many."""
        seconds = [_seconds(each) for each in own]
        known = [each for each in seconds if each is not None]
        if len(known) < len(seconds):
            return self.longest_s, "its TimeoutStopSec= is infinity"
        return sum(known) + MARGIN_S, f"it may take {sum(known):,.0f} s by its TimeoutStopSec="


def stop_unit(control: UnitControl, name: str, patience: Patience, along: Iterable[str] = ()) -> str:
    """The result of the job; units that are stopped `along` have their time, too. One that ended badly just then was
    stopped by order, and is no failed unit of the node. Raises ActionFailed where it does not stop in time: the order
    stands, and systemd goes on with it."""
    ran = control.unit_state(name)["active"] in RUNS
    own = [control.unit_state(each).get("stop_within", "") for each in (name, *along)]
    limit, why = patience.limit(own)

    def go_on(waited: float) -> bool:
        patience.tell(name, waited, limit)
        return patience.stop is None or not patience.stop.is_set() or waited < _GRACE_S

    try:
        result = control.stop(name, limit, go_on)
    except BusSilent as error:
        state = control.unit_state(name)["active"]
        asked = patience.stop is not None and patience.stop.is_set()
        reason = "you asked for an end" if asked else f"it has not stopped in {limit:,.0f} s ({why})"
        raise ActionFailed(
            f"{name} is {state} and was not waited for any longer: {reason}; systemd goes on stopping it, "
            "exhume fix apply waits again, exhume fix rollback starts it again"
        ) from error
    if ran and control.unit_state(name)["active"] == "failed":
        control.reset_failed(name)
    return result


def _seconds(own: str) -> float | None:
    """None for one that may take for ever."""
    if own == "infinity":
        return None
    try:
        return float(own)
    except ValueError:
        return _USUAL_S
