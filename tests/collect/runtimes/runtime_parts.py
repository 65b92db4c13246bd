"""What the real engines of these tests run."""

from dataclasses import dataclass

IMAGE = "plain.test/tools:3"
# Says something on both of its outputs, then fails.
COMPLAINT = "echo no credentials; echo giving up >&2; exit 7"


@dataclass(frozen=True)
class Containers:
    """The ids of the containers by what they do."""

    crashing: str
    steady: str
    finished: str
