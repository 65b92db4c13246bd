"""Where systemd can't be asked for its failed units, the reason is said. (The names themselves: on a real one.)"""

from pathlib import Path

import pytest

from exhume.collect.node_root import NodeRoot
from exhume.collect.vitals import failed_units


def test_without_a_bus_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="there is no D-Bus"):
        failed_units(NodeRoot(tmp_path))


def test_without_systemd_the_reason_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/nothing")
    monkeypatch.setattr("exhume.collect.systemd.units._RUNS", str(tmp_path / "nowhere"))
    with pytest.raises(OSError, match=r"^systemd doesn't run here$"):
        failed_units()


def test_without_a_bus_systemd_s_own_socket_is_used(tmp_path: Path) -> None:
    root = NodeRoot(tmp_path)
    assert root.bus == tmp_path / "run/dbus/system_bus_socket"
    (tmp_path / "run/systemd").mkdir(parents=True)
    (tmp_path / "run/systemd/private").touch()
    assert root.bus == tmp_path / "run/systemd/private"
    with pytest.raises(OSError, match=r"run/systemd/private can't be reached"):
        failed_units(root)
