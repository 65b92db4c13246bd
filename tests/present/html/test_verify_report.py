"""The report of a verified fix: verdicts, JSON, terminal and the data of the HTML report."""

import json

import numpy as np
import pytest
from pydantic import TypeAdapter
from tests.present.html.proofs import mixed_proof, pair, proof_of

from exhume.model.remedy import Change, Measure
from exhume.model.times import UTC
from exhume.present.html.reports import MAX_POINTS, verify_data
from exhume.present.html.schemas import VerifyReport
from exhume.present.terminal.verify import verification_lines
from exhume.present.verify_view import sentence, verdict, verification_json
from exhume.remedy.verify.proof import Proof


@pytest.fixture(scope="module")
def proof() -> Proof:
    return mixed_proof()


def test_what_is_promised_is_proved_though_harm_elsewhere_can_t_be_ruled_out_yet():
    stops = pair(Measure.RESTARTS, np.arange(60) % 2, np.zeros(60), "stop", "a.service")
    noisy = pair(Measure.KERNEL_CORE, (0.1, 0.9, 0.2), (0.8, 0.1, 0.6, 0.3), "stay")
    found = proof_of(stops, noisy).verification
    assert found.measures[1].change is Change.UNPROVEN
    assert verdict(found) == "proved"
    assert (
        "restarts of a.service improved; harm to kernel on its worst core is not seen, and not ruled out"
        in sentence(found)
    )
    assert verification_json(found, UTC)["not_ruled_out"] == ["kernel-core"]
    # Nor is it, where what was promised did not come.
    goes_on = pair(Measure.RESTARTS, np.arange(60) % 2, np.arange(60) % 2, "stop", "a.service")
    assert verdict(proof_of(goes_on, noisy).verification) == "unproven"
    # Where nothing was promised but that all stays as it was, that has to be proved.
    assert verdict(proof_of(noisy).verification) == "unproven"
    assert verification_json(proof_of(noisy).verification, UTC)["not_ruled_out"] == []
    harm = pair(Measure.RECLAIM, np.full(60, 10.0), np.full(60, 9000.0), "stay")
    assert verdict(proof_of(stops, harm).verification) == "worse"


def test_the_data_matches_its_schema(proof):
    data = verify_data(proof, UTC)
    TypeAdapter(VerifyReport).validate_python({"kind": "verify", **data}, strict=True)
    assert [each["change"] for each in data["measures"]] == ["improved", "improved", "worse", "not-enough-evidence"]
    assert "\x1b" not in json.dumps(data, ensure_ascii=False)
    assert data["measures"][3]["after"]["points"] == []


def test_a_long_time_is_drawn_with_its_worst_seconds():
    values = [0.1] * 5000
    values[3333] = 1.0
    proof = proof_of(pair(Measure.BUSIEST_CORE, values, values))
    (measure,) = verify_data(proof, UTC)["measures"]
    assert len(measure["before"]["points"]) <= MAX_POINTS
    assert max(value for value, _ in measure["before"]["points"]) == 1.0
    assert sum(seconds for _, seconds in measure["before"]["points"]) == 5000
    assert measure["before"]["worst"] == "100%"


def test_json_says_all_and_agrees_with_the_words(proof):
    data = verification_json(proof.verification, UTC)
    assert data["verdict"] == verdict(proof.verification) == "worse"
    assert "reclaim got worse" in data["sentence"]
    assert [each["change"] for each in data["measures"]] == ["improved", "improved", "worse", "not-enough-evidence"]
    assert data["measures"][3]["after"]["value"] is None
    assert json.loads(json.dumps(data)) == data


def test_the_words_of_the_whole_fit_what_was_found():
    rng = np.random.default_rng(2)
    good = pair(Measure.FORKS, rng.poisson(2000, 60), rng.poisson(8, 60))
    quiet = pair(Measure.NIC_TIMEOUTS, np.zeros(60), np.zeros(60), "stay")
    unclear = pair(Measure.RESTARTS, [1, 0], [0, 0], "stop", "a.service")
    assert sentence(proof_of(good, quiet).verification) == "it helped: forks improved, 1 other as promised"
    assert verdict(proof_of(good, quiet).verification) == "proved"
    assert sentence(proof_of(quiet).verification) == "nothing moved, and nothing was to move"
    assert verdict(proof_of(good, unclear).verification) == "unproven"
    assert "restarts of a.service: what was promised is not proved" in sentence(proof_of(good, unclear).verification)


@pytest.mark.parametrize("width", [60, 100, 120])
def test_lines_in_the_terminal_fit_and_order_nothing_about(proof, width):
    lines = [line.plain for line in verification_lines(proof.verification, UTC, width)]
    assert max(map(len, lines)) <= width
    assert not any("\x1b" in line for line in lines)
    assert any("not proven" in line for line in lines)
