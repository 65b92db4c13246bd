"""No diagnosis depends on a text: with every text replaced by its code, each recorded incident gets the same findings.

Every scene of tests/diagnose/causes is checked in the same way by `judged`, in `make test`.
"""

from pathlib import Path

import pytest
from tests.diagnose.incidents.recordings import HERE, SCENARIOS, STACKS, without
from tests.diagnose.judged import judged_recording, texts_by_code
from tests.diagnose.scenes import Scene
from tests.parts import sampled

from exhume.diagnose.engine import diagnose
from exhume.store.read.recording import Recording

HOT = ["do_syscall_64", "memcg_stat_show", "mem_cgroup_iter"]


@pytest.mark.parametrize("scenario", sampled(SCENARIOS))
def test_a_recorded_incident_without_texts(scenario: str) -> None:
    recording = Recording.open(HERE / scenario)
    span = recording.span()
    assert span is not None
    judged_recording(recording, span, without_texts=True)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recorded_incident_without_texts_and_stacks(scenario: str, tmp_path: Path) -> None:
    recording = without(scenario, STACKS, tmp_path)
    span = recording.span()
    assert span is not None
    judged_recording(recording, span, without_texts=True)


def test_the_replacement_reaches_every_text(tmp_path: Path) -> None:
    scene = Scene().core(2, 20, 30, system=980).stack(2, 20, 30, 0.97, "kubelet", 77, HOT)
    recording = scene.write(tmp_path)
    with texts_by_code():
        bare = diagnose(recording, scene.window)
    assert bare.findings and bare.ruled_out and bare.symptoms
    for finding in bare.findings:
        assert finding.summary.startswith((finding.cause, "shared."))
        assert [link.text for link in finding.chain] == [link.code for link in finding.chain]
        assert [doubt.text for doubt in finding.doubts] == [doubt.code for doubt in finding.doubts]
        assert all(remedy.text == f"remedy.{remedy.id}" for remedy in finding.remedies if remedy.names_target)
    assert [reason.why for reason in bare.ruled_out] == [reason.code for reason in bare.ruled_out]
    assert [link.text for link in bare.symptoms] == [link.code for link in bare.symptoms]
