"""Folded stacks: each line splits into frames and weights again, whatever the names are."""

from hypothesis import given, settings
from tests.store.profiles import hostile_rows, profile, trees

from exhume.interop.folded import folded_lines, render_folded
from exhume.store.read.flame_tree import build_tree


@settings(deadline=None)
@given(hostile_rows)
def test_folded_lines_can_be_taken_apart_again(rows):
    current, difference = trees(rows)
    total = 0
    for line in folded_lines(current):
        assert line.splitlines() == [line]
        stack, weight = line.rsplit(" ", 1)
        assert len(stack.split(";")) <= 4
        total += int(weight)
    assert total == current.weight[0]
    sides = [line.rsplit(" ", 2)[1:] for line in folded_lines(difference)]
    assert sum(int(now) for _, now in sides) == difference.weight[0]
    assert sum(int(before) for before, _ in sides) == difference.base_weight[0]


def test_folded_text_of_known_stacks():
    tree = build_tree(profile({("python3", "main", "k:read"): 2, ("python3", "main"): 1}, weight_us=5))
    assert sorted(render_folded(tree).splitlines()) == ["python3;main 5", "python3;main;read 10"]


def test_names_order_nothing_about_on_a_terminal():
    tree = build_tree(profile({("evil\x1b[2J", "\x9b31mmain\x7f", "k:read"): 1}, weight_us=5))
    assert render_folded(tree) == "evil [2J; 31mmain ;read 5\n"
