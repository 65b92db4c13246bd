"""The page of a proof: all of it is there, nothing in it runs or leaves it, and nothing overflows in a real browser."""

import html
import json
import re
import subprocess

import numpy as np
import pytest

from exhume.model.clock import NANOS
from exhume.model.remedy import Change, Effect, Measure, Verification
from exhume.model.times import UTC
from exhume.present.terminal.verify import verification_lines
from exhume.present.verify_html import render_proof
from exhume.present.verify_view import sentence, verdict, verification_json
from exhume.remedy.verify.judge import judge
from exhume.remedy.verify.observed import Observed
from exhume.remedy.verify.watch import Proof

APPLIED = 1_780_000_020 * NANOS
NASTY = "</style><script>alert(1)</script>\x1b[31m" + "x" * 200


def observed(measure, values, expected, subject="", span=1.0) -> Observed:
    values = tuple(float(value) for value in values)
    effect = Effect(measure, expected, subject)
    return Observed(effect, "live", APPLIED, APPLIED + 60 * NANOS, values, (span,) * len(values))


def proof_of(*pairs) -> Proof:
    verification = Verification(
        NASTY, "20260528-202700-0001", NASTY, APPLIED, APPLIED, APPLIED + 60 * NANOS,
        tuple(judge(*pair) for pair in pairs), (NASTY,), blind_spots=("what else happened",),
    )  # fmt: skip
    return Proof(verification, tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


def pair(measure, before, since, expected="fall", subject=""):
    return observed(measure, before, expected, subject), observed(measure, since, expected, subject)


@pytest.fixture(scope="module")
def proof() -> Proof:
    rng = np.random.default_rng(1)
    return proof_of(
        pair(Measure.RESTARTS, np.arange(60) % 2, np.zeros(60), "stop", NASTY),
        pair(Measure.FORKS, rng.poisson(2000, 1000), rng.poisson(8, 60)),
        pair(Measure.RECLAIM, rng.poisson(80, 60), rng.poisson(9000, 60), "stay"),
        pair(Measure.NIC_TIMEOUTS, np.zeros(60), ()),
    )


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


def test_nothing_in_it_runs_or_leaves_it(proof):
    page = render_proof(proof, UTC)
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert "<script" not in page
    assert "\x1b" not in page
    assert not re.search(r"(?:src|href)=|https?://|url\(", page)
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_a_long_time_is_drawn_with_its_worst_seconds():
    values = [0.1] * 5000
    values[3333] = 1.0
    page = render_proof(proof_of(pair(Measure.BUSIEST_CORE, values, values)), UTC)
    assert len(page) < 60_000
    # The one bad second reaches the top of its picture.
    heights = [float(y) for y in re.findall(r"L[\d.]+ ([\d.]+)", page)]
    assert min(heights) == pytest.approx(6.0)
    assert "at worst 100%" in page


def test_json_says_all_and_agrees_with_the_words(proof):
    told = verification_json(proof.verification, UTC)
    assert told["verdict"] == verdict(proof.verification) == "worse"
    assert "reclaim got worse" in told["sentence"]
    assert [each["change"] for each in told["measures"]] == ["improved", "improved", "worse", "not-enough-evidence"]
    assert told["measures"][3]["after"]["value"] is None
    assert json.loads(json.dumps(told)) == told


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
    assert any("not enough evidence" in line for line in lines)


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("width", [1100, 500])
def test_it_stands_in_a_browser(proof, tmp_path, width):
    target = tmp_path / "page.html"
    probe = (
        "document.documentElement.setAttribute('data-told', JSON.stringify(["
        "document.querySelectorAll('article').length,"
        "document.querySelectorAll('svg path').length, document.documentElement.scrollWidth <= innerWidth,"
        "[...document.querySelectorAll('.badge')].map((e) => e.textContent)]))"
    )
    # Only for this look: the page's own policy runs no script.
    page = render_proof(proof, UTC).replace("style-src", "script-src 'unsafe-inline'; style-src", 1)
    target.write_text(page.replace("</body>", f"<script>{probe}</script></body>"))
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        f"--disable-component-update --disable-sync --virtual-time-budget=5000 --window-size={width},900 --dump-dom"
    )
    command = ["chromium", *flags.split(), f"--user-data-dir={tmp_path / 'browser'}", target.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True).stdout
    articles, pictures, fits, badges = json.loads(html.unescape(re.search(r'data-told="(.*?)"', shown)[1]))
    assert (articles, pictures, fits) == (4, 7, True)
    assert badges == ["worse", "improved", "improved", "worse", "not enough evidence"]
