"""How old a thing gets, in words."""

import pytest

from exhume.collect.systemd.journal import age_pattern


@pytest.mark.parametrize(
    ("lasted", "reported"),
    [
        ([], ""),
        ([1.0, 2.0], ""),
        ([2.1, 4.0, 3.3], "always a few seconds old: the last 3 runs lasted 2.1 s to 4.0 s"),
        ([2.1, 40.0, 3.3], "never a minute old: the last 3 runs lasted 2.1 s to 40.0 s"),
        (
            [5.0, 7200.0, 86400.0 * 9, 300.0],
            "the last 4 runs lasted 5.0 s to 9 d, half of them less than 2 h",
        ),
    ],
)
def test_runs_as_text(lasted: list[float], reported: str) -> None:
    assert age_pattern(lasted) == reported
