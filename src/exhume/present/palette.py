"""The colours of states and differences, with one meaning each in the heatmap, the flame graphs and the legend.

The hues are those of Okabe and Ito, which stay apart for the common kinds of colour blindness.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """A state of a core: its hue, the letter that stands for it without colours, and what it means."""

    name: str
    hue: str
    letter: str
    meaning: str


STATES: tuple[State, ...] = (
    State("system", "#d55e00", "s", "kernel code"),
    State("softirq", "#cc79a7", "i", "interrupts and softirqs"),
    State("user", "#56b4e9", "u", "programs"),
    State("steal", "#f0e442", "t", "taken by the hypervisor"),
    State("iowait", "#009e73", "o", "idle, with I/O outstanding"),
    State("wait", "#e69f00", "w", "tasks that waited for the core"),
)
BY_NAME = {state.name: state for state in STATES}

# Without colours a state is its letter: small below half of the time, a capital from there on, a blank when idle.
IDLE_PERMILLE, CAPITAL_PERMILLE = 20, 500
LETTERS = "  ".join(f"{state.letter} {state.name}" for state in STATES[:4]) + "  capitals from 50%"


def state_letter(state: str, permille: int) -> str:
    """The character of a cell on a terminal without colours."""
    if permille < IDLE_PERMILLE:
        return " "
    letter = BY_NAME["softirq" if state == "irq" else state].letter
    return letter.upper() if permille >= CAPITAL_PERMILLE else letter


# A difference: orange grew, blue shrank; a pair that colour blindness leaves distinct.
GREW = "#d55e00"
SHRANK = "#0072b2"
UNCHANGED = "#d8d8d4"


def channels(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of `#rrggbb`."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def blend(start: str, end: str, amount: float) -> str:
    """The colour that lies `amount` (0 to 1) of the way between two."""
    share = min(max(amount, 0.0), 1.0)
    mixed = (round(a + (b - a) * share) for a, b in zip(channels(start), channels(end), strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)
