"""Commands that are run for an incident, with the report on stdin and the main values as EXHUME_* variables."""

import os
from collections.abc import Mapping
from pathlib import Path

from exhume.model.errors import os_reason
from exhume.notify.child import child_environment, run_child
from exhume.notify.outbox import Delivery, OutboxSink
from exhume.notify.report import Report

TIMEOUT_S = 60.0
SHELL = "/bin/sh"
# execve rejects any single string of 128 KiB or more (fs/exec.c, MAX_ARG_STRLEN).
_LONGEST = 4096


class CommandSink(OutboxSink):
    """Runs a shell command for each report, one at a time. A failed command is logged and not retried: only the command
    knows whether it is safe to run twice."""

    def __init__(self, command: str, directory: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._command, self._directory, self._timeout_s = command, directory, timeout_s
        super().__init__("--on-incident", self._run)

    def _run(self, report: Report) -> Delivery:
        try:
            done = run_child(
                [SHELL, "-c", self._command],
                report.encoded(),
                timeout_s=self._timeout_s,
                cancel=self._cancel,
                environment={**child_environment(), **variables(report, self._directory)},
            )
        except OSError as error:
            return Delivery(False, problem=f"the command can't be started: {os_reason(error)}")
        if done.code is None:
            return Delivery(False, problem=f"the command was ended: it ran longer than {self._timeout_s:.0f} s")
        if done.code:
            reason = f": {done.last_error[:200]}" if done.last_error else ""
            return Delivery(False, problem=f"the command ended with code {done.code}{reason}")
        return Delivery(True)


def variables(report: Report, directory: Path) -> Mapping[str, str]:
    """The environment variables that a command gets."""
    values = {
        "EXHUME_DIR": os.fspath(directory),
        "EXHUME_NODE": report.node,
        "EXHUME_AT": report.at,
        "EXHUME_CAUSE": report.cause,
        "EXHUME_SEVERITY": report.severity,
        "EXHUME_VERDICT": report.verdict,
        "EXHUME_CONFIDENCE": f"{report.confidence:.2f}",
        "EXHUME_SUMMARY": report.summary,
        "EXHUME_TRIGGER": report.marks[0].trigger,
        "EXHUME_REPEATS": str(report.repeats),
    }
    return {name: value[:_LONGEST].replace("\0", "") for name, value in values.items()}
