"""An object store on loopback."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def s3(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of moto's server, with the bucket `bucket` in it."""
    from moto.server import ThreadedMotoServer

    patch = pytest.MonkeyPatch()
    patch.setenv("AWS_ACCESS_KEY_ID", "test")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    patch.setenv("AWS_REGION", "us-east-1")
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    import pyarrow.fs

    pyarrow.fs.S3FileSystem(endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True).create_dir(
        "bucket"
    )
    yield address
    server.stop()
    patch.undo()
