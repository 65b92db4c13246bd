"""`exhume inventory` and `exhume compare`: files, recordings, bundles, this node, groups; exit codes and messages."""

import json
import shutil
from dataclasses import replace

import pytest
from tests.fleet.inventories import AGENT, BOOTSTRAP, node
from tests.fleet.test_groups import pushed, write
from tests.store.store_rows import cpu_rows, recorder, tick_at

from exhume.cli.commands.compare.sides import read_sides
from exhume.fleet.compare import compare
from exhume.model.inventory import SECTIONS
from exhume.model.inventory.codec import inventory_json, inventory_of
from exhume.present.terminal.compare import comparison_lines
from exhume.present.terminal.inventory import inventory_lines


@pytest.fixture
def files(tmp_path):
    """A node whose bootstrap went well, and one where it failed."""
    made = []
    for name, bootstrap in (("ip-10-0-1-17", True), ("ip-10-0-2-99", False)):
        made.append(tmp_path / f"{name}.json")
        made[-1].write_text(json.dumps(inventory_json(node(name, bootstrap=bootstrap))))
    return [str(path) for path in made]


def test_two_files_that_differ(exhume, files):
    result = exhume("compare", *files, check=False)
    assert result.returncode == 1
    first = " ".join(result.stdout.split()).partition("ip-10-0-1-17: up")[0]
    assert first.strip() == (
        f"DIFFERENT {AGENT} crash-loops on ip-10-0-1-17; on ip-10-0-2-99 it never started, because {BOOTSTRAP} failed"
    )


def test_the_json_has_the_values(exhume, files):
    result = exhume("compare", *files, "--json", check=False)
    found = json.loads(result.stdout)
    assert (result.returncode, found["version"], found["different"]) == (1, 1, True)
    assert found["a"] == {"label": "ip-10-0-1-17", "nodes": 1, "detail": "up 8 d 02 h"}
    first = found["differences"][0]
    assert first["key"] == f"unit.{AGENT}" and first["a"]["value"] == "failed/crash-loop"
    assert first["b"] == {"value": "inactive/never-started", "share": 1.0, "because": BOOTSTRAP, "exit": ""}
    assert first["text"] == found["sentence"]


def test_two_that_are_alike(exhume, files, tmp_path):
    shutil.copy(files[0], tmp_path / "copy.json")
    result = exhume("compare", files[0], str(tmp_path / "copy.json"))
    assert "IDENTICAL" in result.stdout and "copy.json do not differ" in result.stdout


def test_lines_fit_a_terminal_of_80_columns(files):
    found = compare(*read_sides(*files, None))
    lines = list(comparison_lines(found, 80))
    assert len(lines) > 3 and max(line.cell_len for line in lines) <= 80
    assert dict(inventory_lines(node(), None))["boot"].startswith("up 8 d")


@pytest.mark.slow
def test_a_recording_and_its_bundle(exhume, small_recording, tmp_path):
    bundle = tmp_path / "incident.exhume.zip"
    exhume("export", "bundle", "--dir", str(small_recording), "-o", str(bundle))
    assert exhume("compare", str(small_recording), str(bundle)).returncode == 0
    shown = json.loads(exhume("compare", str(small_recording), str(bundle), "--json").stdout)
    assert shown["compared"] > 10 and shown["unread"] == []


@pytest.mark.slow
def test_a_recording_against_a_file(exhume, small_recording, files):
    result = exhume("compare", str(small_recording), files[1], check=False)
    assert result.returncode == 1 and "ecs.service" in result.stdout


def test_this_node_is_like_itself(exhume, tmp_path):
    taken = exhume("inventory", "--json").stdout
    (tmp_path / "here.json").write_text(taken)
    found = inventory_of(taken)
    assert found.kernel is not None and found.kernel.release
    named = {each.top for each in found.missing}
    assert all(getattr(found, section) is not None or section in named for section in SECTIONS)
    result = exhume("compare", ".", str(tmp_path / "here.json"), "--json", check=False)
    differing = [each["key"] for each in json.loads(result.stdout)["differences"]]
    # Other tests start and stop things.
    assert not [
        key for key in differing if not key.startswith(("unit.", "container.", "bootstrap", "mount.", "module."))
    ]


def test_an_inventory_in_the_terminal(exhume):
    shown = exhume("inventory").stdout
    assert shown.startswith("node ") and "\nkernel " in shown and "\nmissing " in shown


def test_a_page(exhume, files, tmp_path):
    page = tmp_path / "difference.html"
    assert exhume("compare", *files, "--html", str(page), check=False).returncode == 1
    text = page.read_text()
    assert AGENT in text and '"kind":"compare"' in text and "http://" not in text.partition("<script")[0]


def test_groups_of_a_lake(exhume, tmp_path):
    rows = [row for number in range(6) for row in pushed(node(f"na-{number}"))]
    other = replace(node().cloud, zone="us-east-1b")
    rows += [row for number in range(6) for row in pushed(node(f"nb-{number}", bootstrap=False, cloud=other))]
    write(tmp_path / "lake", rows)
    given = ("compare", "--lake", str(tmp_path / "lake"), "zone=us-east-1a", "zone=us-east-1b", "--json")
    result = exhume(*given, check=False)
    found = json.loads(result.stdout)
    assert result.returncode == 1 and found["differences"][0]["key"] == f"unit.{AGENT}"
    assert found["differences"][0]["q"] < 0.05 and found["a"]["nodes"] == 6


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (("no-such.json", "."), 2, "can't be read"),
        (("zone=a", "zone=b"), 2, "--lake"),
        (("--lake", "x", "zone=a", "b"), 2, "is not a group"),
        (("--lake", "/no/such/lake", "zone=a", "zone=b"), 3, "no lake at"),
        (("a",), 2, "required"),
    ],
)
def test_what_is_none_is_one_sentence(exhume, given, code, message):
    result = exhume("compare", *given, check=False)
    assert result.returncode == code and message in result.stderr and result.stderr.count("\n") == 1


def test_a_file_that_is_no_inventory(exhume, tmp_path, files):
    (tmp_path / "other.json").write_text('{"version": 1}')
    result = exhume("compare", files[0], str(tmp_path / "other.json"), check=False)
    assert result.returncode == 2 and "is not an inventory" in result.stderr


def test_a_recording_without_an_inventory(exhume, tmp_path, files):
    writer = recorder(tmp_path / "old")
    for index in range(3):
        writer.append("cpu", cpu_rows(tick_at(index), system=1))
        writer.commit(tick_at(index))
    writer.close()
    result = exhume("compare", str(tmp_path / "old"), files[0], check=False)
    assert result.returncode == 3 and "has no inventory" in result.stderr


def test_a_root_that_is_not_there(exhume, tmp_path):
    assert exhume("inventory", "--root", str(tmp_path / "none"), check=False).returncode == 2
    assert exhume("inventory", "--root", str(tmp_path), check=False).returncode == 3
