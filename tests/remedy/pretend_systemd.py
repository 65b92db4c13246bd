"""A systemd that is a file: enough of one to see what a fix leaves behind when it is killed. It outlives the process
that commands it, reads drop-ins only when it is asked to reload, and goes by the conditions in them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

UNITS = "etc/systemd/system"


class PretendSystemd:
    """Commands it. `root` is the node's root directory; `units` are there, with their state and their relations."""

    def __init__(self, root: Path, units: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.root = root
        self._file = root.parent / f"{root.name}.systemd.json"
        if units is not None:
            self._save({name: {"active": "inactive", "drop_ins": "", **known} for name, known in units.items()})

    def units(self) -> dict[str, dict[str, str]]:
        return json.loads(self._file.read_text())

    def active(self) -> dict[str, str]:
        return {name: known["active"] for name, known in self.units().items()}

    def stop(self, name: str, timeout: float = 90.0, go_on: Callable[[float], bool] | None = None) -> str:
        units = self.units()
        for each in [name, *units[name].get("required_by", "").split()]:
            if units[each]["active"] != "failed":
                units[each]["active"] = "inactive"
        self._save(units)
        return "done"

    def start(self, name: str, timeout: float = 90.0) -> str:
        units = self.units()
        for path in units[name]["drop_ins"].split():
            for line in (self.root / path.lstrip("/")).read_text().splitlines():
                key, _, value = line.partition("=!")
                if key == "ConditionPathExists" and (self.root / value.lstrip("/")).exists():
                    return "done"
        units[name]["active"] = "active"
        self._save(units)
        return "done"

    def set(self, name: str, **known: str) -> None:
        units = self.units()
        units[name] |= known
        self._save(units)

    def cpu_weight(self, name: str) -> int | None:
        weight = self.units()[name].get("cpu_weight", "")
        return int(weight) if weight else None

    def set_cpu_weight(self, name: str, weight: int | None) -> None:
        units = self.units()
        units[name].pop("cpu_weight", None)
        if weight is not None:
            units[name]["cpu_weight"] = str(weight)
        self._save(units)

    def has_cpu_cgroup(self, name: str) -> bool:
        return self.units()[name].get("cpu_cgroup", "yes") == "yes"

    def reset_failed(self, name: str) -> None:
        units = self.units()
        if units[name]["active"] == "failed":
            units[name]["active"] = "inactive"
            self._save(units)

    def daemon_reload(self) -> None:
        units = self.units()
        for name, known in units.items():
            directory = self.root / UNITS / f"{name}.d"
            found = sorted(directory.glob("*.conf")) if len(name) < 250 and directory.is_dir() else []
            known["drop_ins"] = " ".join(f"/{path.relative_to(self.root)}" for path in found)
            known["load"] = "masked" if (self.root / UNITS / name).is_symlink() else "loaded"
        self._save(units)

    def unit_state(self, name: str) -> dict[str, str]:
        known = self.units().get(name, {"active": "inactive", "load": "not-found"})
        reported = {
            "id": name,
            "load": known.get("load", "loaded"),
            "active": known["active"],
            "pid": "0",
            "cgroup": "",
        }
        reported["refuses_stop"] = known.get("refuses_stop", "no")
        return reported | {word: known.get(word, "") for word in ("names", "listens", "needs_reload")}

    def unit_fingerprint(self, name: str) -> dict[str, str]:
        known = self.units()[name]
        words = ("drop_ins", "required_by", "triggered_by", "triggers", "wanted_by", "upheld_by")
        words += ("unit_file_state", "fragment")
        return {word: known.get(word, "") for word in words}

    def _save(self, units: Mapping[str, Mapping[str, str]]) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps(units))
        beside.rename(self._file)
