"""Writes deploy/node-problem-detector/exhume-kernel-monitor.json: the kernel log's signatures as rules.

node-problem-detector compiles them with Go's regexp and appends \\z: a rule has to match to the end of the line. Rules
are temporary, that is events: a permanent one would set a condition that nothing clears.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from exhume.collect.sources.kmsg_signatures import SIGNATURES, STARVATION_KINDS

TARGET = Path(__file__).resolve().parents[1] / "deploy/node-problem-detector/exhume-kernel-monitor.json"


def monitor() -> dict[str, Any]:
    rules = [
        {
            "type": "temporary",
            "reason": "".join(part.capitalize() for part in signature.kind.split("-")),
            # Go has no use for the names of groups, and \Z or look-around don't occur.
            "pattern": re.sub(r"\(\?P<\w+>", "(", signature.pattern.pattern) + ".*",
        }
        for signature in SIGNATURES
        if signature.kind in STARVATION_KINDS
    ]
    return {
        "plugin": "kmsg",
        "logPath": "/dev/kmsg",
        "lookback": "5m",
        "bufferSize": 10,
        "source": "exhume-kernel-monitor",
        "metricsReporting": True,
        "conditions": [],
        "rules": rules,
    }


def rendered() -> str:
    return json.dumps(monitor(), indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(rendered())
    sys.stdout.write(f"{TARGET.name}: {len(monitor()['rules'])} rules\n")
