"""Certificates made by openssl: an authority, and what it or another one signed."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

_REQUEST = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"


@dataclass(frozen=True, slots=True)
class Certificate:
    file: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """Those of a server."""
        return "--tls-cert", str(self.file), "--tls-key", str(self.key)


def authority(directory: Path, name: str) -> Certificate:
    made = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    _run(f"{_REQUEST} -x509 -days 2 -subj /CN={name} -keyout {made.key} -out {made.file}")
    return made


def signed(by: Certificate, name: str, host: str, days: int = 2) -> Certificate:
    """A certificate for a host; with fewer than 0 days it is not valid any more."""
    made = Certificate(by.file.with_name(f"{name}.pem"), by.file.with_name(f"{name}.key"))
    request, extensions = made.file.with_suffix(".csr"), made.file.with_suffix(".ext")
    extensions.write_text(f"subjectAltName=DNS:{host}\n")
    _run(f"{_REQUEST} -subj /CN={host} -keyout {made.key} -out {request}")
    signing = f"openssl x509 -req -in {request} -CA {by.file} -CAkey {by.key} -CAcreateserial -days {days}"
    _run(f"{signing} -extfile {extensions} -out {made.file}")
    return made


def _run(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
