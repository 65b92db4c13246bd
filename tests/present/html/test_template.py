"""The template of the reports: data goes in as data, and a missing template is an error that says what to do."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.model.errors import ExhumeError
from exhume.present.html import flame
from exhume.present.html.flame import embedded_json, render

HOSTILE = ["</script>", "</SCRIPT >", "<!--", "-->", "<script>", "]]>", "\u2028", "\u2029", "&lt;", "\0", "\ud800"]


@given(st.recursive(st.text() | st.sampled_from(HOSTILE) | st.integers(), st.lists, max_leaves=5))
def test_embedded_json_is_the_same_data_and_holds_no_markup(data):
    text = embedded_json(data)
    assert json.loads(text) == data
    assert not set(text) & set("<>&\u2028\u2029")
    assert text.isascii()


def test_not_a_number_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        embedded_json([float("nan")])


def test_the_title_is_escaped_and_the_data_has_its_kind():
    text = render("verify", {"title": "</title><script>alert(1)</script>"})
    assert "&lt;/title&gt;&lt;script&gt;" in text
    assert text.count("<script") == 2
    assert '{"kind":"verify",' in text


def test_markers_in_the_data_are_data():
    text = render("verify", {"title": "<!--report-data-->", "sentence": "<!--report-title-->"})
    assert text.count('{"kind":"verify",') == 1


def test_a_missing_template_says_how_to_build_it(monkeypatch, tmp_path):
    flame.template.cache_clear()
    monkeypatch.setattr(flame, "files", lambda _package: tmp_path)
    with pytest.raises(ExhumeError, match="make web"):
        flame.template()
    flame.template.cache_clear()
