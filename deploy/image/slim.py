"""Removes from the image what exhume never loads: pyarrow's clients for other systems, headers and tests. The clients
of the object stores that a lake may be in stay.

Run by the environment that is to become slim; it fails where a pattern matches nothing, so that none outlives its use.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

SITE = Path(sysconfig.get_path("purelib"))
UNUSED = (
    "pyarrow/include",
    "pyarrow/tests",
    "pyarrow/src",
    "pyarrow/*flight*",
    "pyarrow/_azurefs*",
    "pyarrow/_hdfs*",
    "pyarrow/_pyarrow_cpp_tests*",
    "pyarrow/**/*.pxd",
    "pyarrow/**/*.pxi",
    "pyarrow/**/*.pyx",
    "numpy/**/tests",
    "numpy/**/include",
    "numpy/f2py",
    "numpy/**/*.pyi",
)
# What is linked by its full version only, and there three times (wheels have no links).
COPIES = "pyarrow/libarrow_python*.so*"


def main() -> None:
    for pattern in UNUSED:
        found = list(SITE.glob(pattern))
        if not found:
            sys.exit(f"nothing matches {pattern} in {SITE}: take it out of {Path(__file__).name}")
        for path in found:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    for path in SITE.glob(COPIES):
        suffix = path.name.partition(".so")[2]
        # The loader looks for libarrow_python.so.2600: one number.
        if suffix.count(".") != 1:
            path.unlink()
    for path in (*SITE.rglob("__pycache__"), *SITE.rglob("*.a")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    # A read-only file system keeps bytecode from being made later, and without it every command starts slowly.
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-j0", SITE], check=True)
    loads = "import grpc, jeepney, numpy, pyarrow.compute, pyarrow.ipc, pyarrow.parquet, uvicorn\n"
    loads += "from pyarrow.fs import GcsFileSystem, S3FileSystem"
    subprocess.run([sys.executable, "-c", loads], check=True)


if __name__ == "__main__":
    main()
