"""The units of systemd that failed, as systemctl lists them."""

import subprocess
from pathlib import Path

_RUNS = Path("/run/systemd/system")
_PATIENCE_S = 5.0
_LIST = ("list-units", "--state=failed", "--all", "--plain", "--no-legend", "--no-pager")


def failed_units(program: str = "systemctl", runs: Path = _RUNS) -> list[str]:
    """Their names. Raises OSError, with the reason, where systemd doesn't run or doesn't answer."""
    if not runs.is_dir():
        raise OSError("systemd doesn't run here")
    try:
        said = subprocess.run([program, *_LIST], capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(f"systemd did not answer within {_PATIENCE_S:.0f} s") from None
    except FileNotFoundError:
        raise OSError(f"{program} is not installed") from None
    if said.returncode:
        raise OSError(said.stderr.strip() or f"{program} ended with code {said.returncode}")
    return [line.split()[0] for line in said.stdout.splitlines() if line.strip()]
