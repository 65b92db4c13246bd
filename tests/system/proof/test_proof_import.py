"""Files of perf, mpstat and dmesg tell the same as exhume's own recording of the same minutes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("perf", "mpstat", "dmesg"),
    pytest.mark.alone,
    pytest.mark.long,
]

EXHUME = str(Path(sys.executable).with_name("exhume"))
BEFORE_S, TROUBLE_S, AFTER_S = 15, 20, 3
UTC = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}


def diagnosed(directory: Path) -> list[str]:
    """The causes of findings above `info`, the first one first."""
    said = subprocess.run([EXHUME, "diagnose", "--dir", directory, "--json"], capture_output=True, check=False)
    assert said.returncode in (0, 1), said.stderr.decode()
    return [each["cause"] for each in json.loads(said.stdout)["findings"] if each["severity"] != "info"]


@pytest.mark.parametrize("scenario", ["mount-storm", "softirq-storm"])
def test_diagnose_names_the_same_cause(tmp_path, scenario):
    own, data, figures = tmp_path / "own", tmp_path / "perf.data", tmp_path / "mpstat.json"
    total = BEFORE_S + TROUBLE_S + AFTER_S
    with figures.open("wb") as output:
        running = [
            subprocess.Popen([EXHUME, "record", "--dir", own]),
            subprocess.Popen(["perf", "record", "-q", "-a", "-g", "-F", "97", "-k", "mono", "-o", data], env=UTC),
            subprocess.Popen(["mpstat", "-P", "ALL", "-o", "JSON", "1"], stdout=output, env=UTC),
        ]
        try:
            time.sleep(BEFORE_S)
            subprocess.run([EXHUME, "lab", "run", scenario, "--for", f"{TROUBLE_S}s"], check=True, timeout=total * 4)
            time.sleep(AFTER_S)
        finally:
            for process in running:
                process.send_signal(signal.SIGINT)
            for process in running:
                process.wait(60)
    log = tmp_path / "dmesg.txt"
    log.write_bytes(subprocess.run(["dmesg", "--time-format", "iso"], capture_output=True, check=True).stdout)
    imported = tmp_path / "imported"
    subprocess.run([EXHUME, "import", data, figures, log, "--dir", imported, "--utc"], check=True)
    expected = diagnosed(own)
    assert expected
    assert expected[0] == scenario
    assert diagnosed(imported)[:1] == expected[:1]
