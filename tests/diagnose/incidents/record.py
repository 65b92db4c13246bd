"""Makes the small recordings of this directory from runs that the lab's score kept:

    exhume lab score --runs 3 --quiet-runs 3 --keep /var/tmp/kept
    python tests/diagnose/incidents/record.py /var/tmp/kept/*

Of each scenario the first run that was right is taken: some seconds of calm and some of the trouble, with stacks of the
kernel whole and of programs by their last frame, and nothing in it that tells of the machine. What is found in the
small recording has to be what was found in the whole one, on the same core (of less time it may be less grave); else
it isn't written.
"""

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.diagnose.incidents.scrub import Rows, Scrubber

from exhume.diagnose.engine import diagnose
from exhume.model.clock import MILLIS, NANOS, Tick, Window
from exhume.model.facts import RecordingFacts
from exhume.model.finding import Finding
from exhume.model.tables import TABLES
from exhume.store.format.schema import time_column
from exhume.store.read.recording import Recording
from exhume.store.write.writer import SegmentWriter

HERE = Path(__file__).parent
CALM_S, TROUBLE_S, AFTER_S = 8, 8, 2
MOST_BYTES = 150_000
# A moment that is nobody's.
MONO, WALL = 5_000 * NANOS, 1_780_000_020 * NANOS
# What explains other rows comes first: names in log lines are known by then.
ORDER = ("processes", "samples", *(name for name in TABLES if name not in ("processes", "samples", "anchors")))
# Costs of the recorder, and what the machine is made of, are not the story's.
LEFT_OUT = {"self", "inventory"}


def best(recording: Recording) -> list[Finding]:
    span = recording.span()
    assert span is not None
    return diagnose(recording, span).findings


def right(findings: list[Finding], cause: str) -> bool:
    if cause == "nothing":
        return all(finding.severity == "info" for finding in findings)
    return bool(findings) and findings[0].cause == cause


def tell(finding: Finding | None) -> dict[str, Any]:
    if finding is None:
        return {"cause": None}
    return {
        "cause": finding.cause,
        "severity": str(finding.severity),
        "confidence": finding.confidence,
        "cpu": finding.culprit.cpu,
        "comm": finding.culprit.comm,
    }


def window_of(recording: Recording, truth: dict[str, Any]) -> Window:
    """So much calm, so much trouble: the beginning of it where it is longer."""
    began = truth["began"]
    until = min(truth["ended"], began + TROUBLE_S * NANOS) + AFTER_S * NANOS
    return Window(began - CALM_S * NANOS, until).clamp(recording.span())


def trim(source: Path, target: Path, truth: dict[str, Any]) -> None:
    recording = Recording.open(source)
    window = window_of(recording, truth)
    anchors = recording.read("anchors", window).to_pylist()
    first = anchors[0]
    shift, wall_shift = MONO - first["time"], WALL - first["wall"]
    scrubber = Scrubber(truth["names"], truth["cgroups"])
    writer = SegmentWriter(target, neutral(recording.facts), max_bytes=None, max_age_s=None, segment_s=3600)
    rows = {table: shifted(table, recording, window, shift) for table in ORDER if table not in LEFT_OUT}
    frames_of = {row["frame"]: row for row in rows.pop("frames")}
    stacks_of = {row["stack"]: row["frames"] for row in rows.pop("stacks")}
    renamed, frames, stacks = slim(rows["samples"], stacks_of, frames_of)
    for row in rows["samples"]:
        row["stack"] = renamed[row["stack"]]
    used = {row["pid"] for table in ("samples", "cgroup_events", "events") for row in rows[table]}
    rows["processes"] = [row for row in rows["processes"] if row["pid"] in used]
    # Lines of the log that no signature knows say nothing but what machine this is.
    rows["events"] = [row for row in rows["events"] if row["kind"] != "kernel-line"]
    for table, found in rows.items():
        scrubber.rows(table, found)
    writer.append("frames", columns(frames))
    writer.append("stacks", columns(stacks))
    before = first["time"] + shift
    for number, anchor in enumerate(anchors[1:]):
        end = anchor["time"] + shift
        for table, found in rows.items():
            now = [row for row in found if before <= moment(table, row) < end]
            if now:
                writer.append(table, columns(now))
        writer.commit(Tick(number, before, end, anchor["wall"] + wall_shift))
        before = end
    writer.close()


def neutral(facts: RecordingFacts) -> RecordingFacts:
    return RecordingFacts(
        node="node-1",
        boot_id="1f0c5a9e" + "0" * 24,
        cores=facts.cores,
        kernel=facts.kernel.split("-")[0],
        arch=facts.arch,
        event_source=facts.event_source,
        rate_hz=facts.rate_hz,
        # Whether the machine had systemd is not part of the story.
        sources_missing=[each for each in facts.sources_missing if each.source != "systemd"],
    )


def shifted(table: str, recording: Recording, window: Window, shift: int) -> Rows:
    rows: Rows = recording.read(table, window).to_pylist()
    column = time_column(table)
    for row in rows:
        row.pop("wall", None)
        if column == "time_ms":
            row[column] += round(shift / MILLIS)
        elif column is not None:
            row[column] += shift
        if table == "processes":
            # One that was seen before the window explains rows inside it.
            row["time"] = max(row["time"], MONO)
            row["start"] = None if row["start"] is None else row["start"] + shift
        for name in ("kernel_us", "sequence"):
            if name in row:
                row[name] = None
    return rows


def moment(table: str, row: dict[str, Any]) -> int:
    return row["time_ms"] * MILLIS if table == "samples" else row["time"]


def slim(
    samples: Rows, stacks_of: dict[int, list[int]], frames_of: dict[int, dict[str, Any]]
) -> tuple[Any, Rows, Rows]:
    """Stacks with the kernel's frames and, of a program's, the last one: its new number by its old one."""
    renamed: dict[int, int] = {}
    frames: dict[int, dict[str, Any]] = {}
    stacks: dict[int, list[int]] = {}
    for old in {row["stack"] for row in samples}:
        reported = [frames_of[number] for number in stacks_of[old]]
        programs = [frame for frame in reported if frame["kind"] != "kernel"]
        kernel = [frame for frame in reported if frame["kind"] == "kernel"]
        kept = []
        for frame in [*[plain(each) for each in programs[-1:]], *kernel]:
            number = hashed(frame["kind"], frame["module"], frame["name"])
            frames[number] = {**frame, "frame": number}
            kept.append(number)
        new = hashed(*map(str, kept))
        stacks[new], renamed[old] = kept, new
    return renamed, list(frames.values()), [{"stack": new, "frames": kept} for new, kept in stacks.items()]


def plain(frame: dict[str, Any]) -> dict[str, Any]:
    """What is not of every system's own libraries is just a program."""
    module = Path(frame["module"]).name
    known = module.startswith(("python", "libc", "libz", "ld-", "[vdso]"))
    return {**frame, "module": module} if known else {**frame, "module": "program", "name": "main"}


def hashed(*words: str) -> int:
    return int.from_bytes(hashlib.blake2b("|".join(words).encode(), digest_size=8).digest(), "little")


def columns(rows: Rows) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def make(kept: Path) -> str:
    truth = json.loads((kept / "run.json").read_text())
    name = truth["scenario"]
    target = HERE / name
    whole = best(Recording.open(kept))
    if not right(whole, truth["cause"]):
        return f"{kept.name}: {[finding.cause for finding in whole]} is wrong, not taken"
    with tempfile.TemporaryDirectory() as directory:
        small = Path(directory) / "recording"
        trim(kept, small, truth)
        # The tables stay, what a recorder keeps beside them doesn't.
        shutil.rmtree(small / "live", ignore_errors=True)
        (small / "recorder.lock").unlink()
        found = best(Recording.open(small))
        reported, expected = tell(found[0] if found else None), tell(whole[0] if whole else None)
        same = right(found, truth["cause"]) and all(reported.get(key) == expected.get(key) for key in ("cause", "cpu"))
        size = sum(file.stat().st_size for file in small.rglob("*") if file.is_file())
        if not same or size > MOST_BYTES:
            return f"{kept.name}: {reported} of {size:,} bytes, but the whole says {expected}; not taken"
        if target.exists():
            shutil.rmtree(target)
        shutil.copytree(small, target)
    grave = [each for each in found if each.severity != "info"]
    outcome = {
        "scenario": name,
        "expected": truth["cause"],
        "core": truth["core"],
        "top": reported,
        "grave": len(grave),
    }
    (target / "expected.json").write_text(json.dumps(outcome, indent=1) + "\n")
    return f"{kept.name}: {size:,} bytes, {reported}"


if __name__ == "__main__":
    taken: set[str] = set()
    for path in map(Path, sys.argv[1:]):
        scenario = json.loads((path / "run.json").read_text())["scenario"]
        if scenario in taken:
            continue
        said = make(path)
        print(said)
        if "not taken" not in said:
            taken.add(scenario)
