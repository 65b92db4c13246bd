"""The codes of a diagnosis: what tests assert on instead of sentences."""

from exhume.model.finding import Diagnosis, Finding


def codes(finding: Finding) -> list[str]:
    """The codes of a finding's chain."""
    return [link.code for link in finding.chain]


def doubts(finding: Finding) -> list[str]:
    """The codes of what limits a finding's confidence."""
    return [doubt.code for doubt in finding.doubts]


def reason(diagnosis: Diagnosis, cause: str) -> str | None:
    """The code with which a cause was ruled out; None where it was not."""
    return next((each.code for each in diagnosis.ruled_out if each.cause == cause), None)
