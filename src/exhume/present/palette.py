"""The colours of states and differences, each with one meaning in the heatmap, the flame graphs and the legend.

The hues are those of Okabe and Ito, which remain distinguishable with the common kinds of colour blindness.
"""

from collections.abc import Callable
from dataclasses import dataclass

from exhume.model.tables import STATE_WEIGHTS

RED, ORANGE, BLUE, GREEN, GREY = "#d55e00", "#e69f00", "#56b4e9", "#009e73", "#7f8792"


@dataclass(frozen=True, slots=True)
class State:
    """A state of a core: its hue, the letter that represents it without colours, its meaning, and its shades on a
    256-colour terminal, the weakest first."""

    name: str
    hue: str
    letter: str
    meaning: str
    shades: tuple[str, ...]


STATES: tuple[State, ...] = (
    State("system", RED, "s", "kernel code", ("#5f0000", "#870000", "#af5f00", "#d75f00")),
    State("softirq", "#cc79a7", "i", "interrupts and softirqs", ("#5f005f", "#87005f", "#af5f87", "#d787af")),
    State("user", BLUE, "u", "programs", ("#005f87", "#0087af", "#5fafd7", "#5fd7ff")),
    State("steal", "#f0e442", "t", "taken by the hypervisor", ("#5f5f00", "#878700", "#afaf00", "#d7d75f")),
    State("iowait", GREEN, "o", "idle, with I/O outstanding", ("#005f5f", "#00875f", "#00af5f", "#00af87")),
    State("wait", ORANGE, "w", "tasks that waited for the core", ("#875f00", "#af8700", "#d78700", "#ffaf00")),
)
# Hard and soft interrupts share a colour: both take the core from the running program.
BY_NAME = {state.name: state for state in STATES} | {"irq": STATES[1]}
NIGHT = "#1b1d22"  # an idle core

# Without colours a state is its letter: lower case below half of the time, upper case from there on, blank when idle.
IDLE_PERMILLE, CAPITAL_PERMILLE = 20, 500
CAPITALS = "capitals from 50%"
LETTERS = "  ".join(f"{state.letter} {state.name}" for state in STATES[:4]) + f"  {CAPITALS}"


def state_letter(state: str, permille: int) -> str:
    """The character of a cell on a terminal without colours."""
    if permille < IDLE_PERMILLE:
        return " "
    letter = BY_NAME[state].letter
    return letter.upper() if permille >= CAPITAL_PERMILLE else letter


def state_rank(state: str, permille: int) -> float:
    """How bad a share of a state is, for choosing the core to show when several share a cell."""
    return permille * STATE_WEIGHTS.get(state, 1.0)


# Differences: orange for growth, blue for shrinkage, a pair that is safe for colour blindness.
GREW, SHRANK, UNCHANGED = RED, "#0072b2", "#d8d8d4"


def blend(start: str, end: str, amount: float) -> str:
    """Mix two colours; `amount` (0 to 1) is the share of the second."""
    share = min(max(amount, 0.0), 1.0)
    channels = zip(bytes.fromhex(start[1:]), bytes.fromhex(end[1:]), strict=True)
    return "#" + bytes(round(a + (b - a) * share) for a, b in channels).hex()


def state_colour(state: str, permille: int) -> str:
    """The colour of a cell on a dark background. The exponent keeps small shares visible; below two percent a core
    counts as idle."""
    share = min(permille, 1000) / 1000
    return NIGHT if permille < IDLE_PERMILLE else blend(NIGHT, BY_NAME[state].hue, share**0.8)


def state_shade(state: str, permille: int) -> str:
    """The colour of a cell on a 256-colour terminal, whose nearest matches to the blended colours would have other
    hues."""
    if permille < IDLE_PERMILLE:
        return NIGHT
    shades = BY_NAME[state].shades
    return shades[min(permille, 999) * len(shades) // 1000]


def cell_colour(colours: str | None) -> Callable[[str, int], str]:
    """The colour of a cell by state and permille, for a terminal's colour system (rich's name)."""
    return state_shade if colours == "256" else state_colour
