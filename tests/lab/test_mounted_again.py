"""An image is mounted again only when no process has it: two file systems of one image would spoil each other."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.needs("mkfs.ext4", "unshare")]

# A process that makes a mount namespace in these moments would keep the image for as long as that lasts. So it is
# mounted in a private one.
IN_A_NAMESPACE = ["unshare", "--mount", sys.executable, "-c"]
MOUNT_TWICE = """
import subprocess, sys
from pathlib import Path
from exhume.lab.mounts import make_ext4, mount_ext4, unmount

image, place = (Path(sys.argv[1]) / name for name in ("image", "mounted"))
make_ext4(image, 8 << 20, 64)
mount_ext4(image, place)
keeper = ["unshare", "--mount", "sh", "-c", "echo; read line"]
with subprocess.Popen(keeper, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as elsewhere:
    try:
        elsewhere.stdout.readline()
        (place / "written").mkdir()
        unmount(place)
        letting_go = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill {elsewhere.pid}"])
        mount_ext4(image, place)
        assert letting_go.wait() == 0
        print(*(path.name for path in place.iterdir()))
    finally:
        elsewhere.kill()
        unmount(place)
"""


def test_what_another_mount_namespace_keeps_is_waited_for(tmp_path: Path) -> None:
    done = subprocess.run(
        [*IN_A_NAMESPACE, MOUNT_TWICE, tmp_path], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "written" in done.stdout.split(), "it is the same file system, with all that was written"
