"""The wheel of `make wheel`: one file for every machine, installed offline, and it records and serves."""

import json
import os
import select
import subprocess
import zipfile
from email import message_from_string
from urllib.request import urlopen

import pytest
from tests.system.install.program import build_wheel, clean_environment, run, runtime_requirements

from exhume import __version__

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("services")]


def test_the_wheel_is_pure_python_with_the_page_and_one_version(wheel):
    assert wheel.name == f"exhume-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        metadata = message_from_string(packed.read(f"exhume-{__version__}.dist-info/METADATA").decode())
        entry = packed.read(f"exhume-{__version__}.dist-info/entry_points.txt").decode()
    assert metadata["Version"] == __version__
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert "exhume = exhume.cli.main:run" in entry
    assert not [name for name in names if name.endswith((".so", ".c", ".node"))]
    assert "exhume/present/web/static/index.html" in names
    share = f"exhume-{__version__}.data/data/share/"
    shared = {name.removeprefix(share) for name in names if name.startswith(share)}
    assert {"bash-completion/completions/exhume", "zsh/site-functions/_exhume"} <= shared
    assert {"fish/vendor_completions.d/exhume.fish", "man/man1/exhume.1", "man/man1/exhume-diagnose.1"} <= shared


def test_the_same_sources_give_the_same_bytes(wheel, tmp_path):
    assert build_wheel(tmp_path).read_bytes() == wheel.read_bytes()


def test_only_what_runs_the_program_is_installed():
    kept = runtime_requirements("hatchling==1 \\\n    --hash=a\nnumpy==2 ; x \\\n    --hash=b\n    --hash=c\n")
    assert kept == "numpy==2 ; x \\\n    --hash=b\n    --hash=c\n"


def test_the_installed_program_records_and_serves(program, tmp_path):
    clean = clean_environment()
    assert run(program, "--version", environment=clean, cwd=tmp_path) == f"exhume {__version__}\n"
    recording = tmp_path / "recording"
    run(program, "record", "--for", "3s", "--dir", recording, environment=clean, cwd=tmp_path)
    facts = json.loads(run(program, "info", "--dir", recording, "--json", environment=clean, cwd=tmp_path))
    assert facts["exhume_version"] == __version__
    assert facts["recorded_seconds"] >= 2
    command = [program, "serve", "--dir", recording, "--listen", "127.0.0.1:0", "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean, cwd=tmp_path)
    assert server.stdout is not None
    try:
        assert select.select([server.stdout], [], [], 120)[0], "the server says nothing"
        address = server.stdout.readline().removeprefix("exhume: ").strip()
        with urlopen(address) as answer:
            assert b'<div id="page">' in answer.read()
        with urlopen(f"{address}api/recording") as answer:
            assert json.load(answer)["cores"] == os.cpu_count()
    finally:
        server.terminate()
        server.wait(60)
        server.stdout.close()
