"""How long a unit may take to stop, by its settings."""

import pytest

from exhume.control.systemd import stop_within


@pytest.mark.parametrize(
    ("known", "seconds"),
    [
        ({"TimeoutStopUSec": 4_000_000}, "4"),
        ({"TimeoutStopUSec": 4_000_000, "ExecStop": [["/a"], ["/b"]], "ExecStopPost": [["/c"]]}, "16"),
        ({"TimeoutStopUSec": 4_000_000, "ExecStop": []}, "4"),
        ({"TimeoutStopUSec": 2**64 - 1}, "infinity"),
        ({}, "0"),
    ],
)
def test_each_command_has_its_time(known: dict[str, object], seconds: str) -> None:
    assert stop_within(known) == seconds
