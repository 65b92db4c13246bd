"""An image is mounted again only when nobody has it any more: two file systems of one image would spoil each other."""

import subprocess
from pathlib import Path

import pytest

from exhume.lab.mounts import make_ext4, mount_ext4, unmount

pytestmark = [pytest.mark.root, pytest.mark.needs("mkfs.ext4", "unshare")]


def test_what_another_mount_namespace_keeps_is_waited_for(tmp_path: Path) -> None:
    image, place = tmp_path / "image", tmp_path / "mounted"
    make_ext4(image, 8 << 20, 64)
    mount_ext4(image, place)
    keeper = ["unshare", "--mount", "sh", "-c", "echo; read line"]
    with subprocess.Popen(keeper, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as elsewhere:
        try:
            assert elsewhere.stdout is not None and elsewhere.stdin is not None
            elsewhere.stdout.readline()
            (place / "written").mkdir()
            unmount(place)
            letting_go = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill {elsewhere.pid}"])
            mount_ext4(image, place)
            assert letting_go.wait(10) == 0
            assert (place / "written").is_dir(), "it is the same file system, with all that was written"
        finally:
            elsewhere.kill()
            unmount(place)
