"""What a way to judge a measure gives back, and how sure it has to be."""

from dataclasses import dataclass

from exhume.model.remedy import Change

# The chance of a wrong `improved` or `worse` for a measure; ways to judge the same measure share it.
DOUBT = 0.01
SURE = "99% sure"
# The chance of a wrong `unchanged`, on either side.
SAME_DOUBT = 0.05
# Counts have changed when they halved or doubled.
FACTOR = 2.0
# So long without any, before a fix, is worth comparing with.
LONG_S = 600.0


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and its reason. `gone`: there is nothing of it any more; `never`: nor was there to begin with."""

    change: Change
    why: str
    gone: bool = False
    never: bool = False
