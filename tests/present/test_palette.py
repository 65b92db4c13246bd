"""The colours of cores on terminals."""

import colorsys

import pytest
from rich.color import Color, ColorSystem

from exhume.present.palette import BY_NAME, IDLE_PERMILLE, NIGHT, STATES, cell_colour, state_colour


def hue(colour: tuple[int, int, int]) -> float:
    return 360 * colorsys.rgb_to_hsv(*(each / 255 for each in colour))[0]


def shown(colour: str) -> tuple[int, int, int]:
    """As a terminal of 256 colours shows it."""
    return tuple(Color.parse(colour).downgrade(ColorSystem.EIGHT_BIT).get_truecolor())


def degrees(one: float, other: float) -> float:
    return min(abs(one - other), 360 - abs(one - other))


@pytest.mark.parametrize("state", [state.name for state in STATES])
def test_with_256_colours_a_state_keeps_its_hue_and_is_the_brighter_the_more_of_it_there_is(state: str):
    own = hue(tuple(bytes.fromhex(BY_NAME[state].hue[1:])))
    others = [hue(tuple(bytes.fromhex(each.hue[1:]))) for each in STATES if each.name != state]
    brightness = []
    for permille in range(IDLE_PERMILLE, 1001):
        colour = shown(cell_colour("256")(state, permille))
        brightness.append(sum(colour))
        near = degrees(hue(colour), own)
        assert near < min(degrees(hue(colour), other) for other in others), (permille, colour)
    assert brightness == sorted(brightness)
    assert len(set(brightness)) == len(BY_NAME[state].shades)


def test_blends_are_for_terminals_that_have_them():
    assert cell_colour("truecolor") is state_colour
    assert cell_colour("256")("user", IDLE_PERMILLE - 1) == NIGHT
