"""Client of the Container Runtime Interface (CRI) over gRPC.

Its messages come out of a compiled description, read when it is needed, instead of generated Python code: any version
of protobuf will do.
"""

import os
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from exhume.model.errors import ExhumeError


@lru_cache(maxsize=1)
def messages() -> dict[str, Any]:
    """The classes of all messages, by their names without the package."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    described = descriptor_pb2.FileDescriptorSet.FromString(
        files("exhume.collect.containers").joinpath("runtime.protoset").read_bytes()
    )
    pool = descriptor_pool.DescriptorPool()
    found = {}
    for file in described.file:
        pool.Add(file)
        for message in file.message_type:
            descriptor = pool.FindMessageTypeByName(f"{file.package}.{message.name}")
            found[message.name] = message_factory.GetMessageClass(descriptor)
    return found


_TIMEOUT_S = 5.0
# A node full of containers comes in one answer.
_MOST_BYTES = 64 << 20
# Before version 1 the same messages went by another name.
_PACKAGES = ("runtime.v1", "runtime.v1alpha2")


class CriError(ExhumeError):
    """The runtime could not be asked, or refused. `unknown` is True where it does not speak CRI at all."""

    def __init__(self, message: str, *, unknown: bool = False) -> None:
        super().__init__(message)
        self.unknown = unknown


class Cri:
    """A runtime by its socket, to be used in a `with`. Whatever goes wrong is a CriError."""

    def __init__(self, socket: Path, packages: tuple[str, ...] = _PACKAGES) -> None:
        # It would write its own lines to the terminal; and it takes a while to load.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc

        self._socket = socket
        self._channel = grpc.insecure_channel(
            # Its addresses are escaped, paths are not.
            f"unix:{quote(os.fspath(socket))}",
            # Servers written in Go refuse the name that is made of a path.
            options=(("grpc.default_authority", "localhost"), ("grpc.max_receive_message_length", _MOST_BYTES)),
        )
        self._package = ""
        try:
            self._package, self.version = self._greet(packages)
        except CriError:
            self._channel.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def sandboxes(self) -> list[Any]:
        """Its pods, as messages of the interface (PodSandbox)."""
        return list(self._ask("RuntimeService", "ListPodSandbox").items)

    def containers(self) -> list[Any]:
        """Its containers, those that ended as well (Container)."""
        return list(self._ask("RuntimeService", "ListContainers").containers)

    def status(self, container: str) -> Any:
        """All that it knows of a container (ContainerStatusResponse)."""
        return self._ask("RuntimeService", "ContainerStatus", container_id=container, verbose=True)

    def images(self) -> list[Any]:
        """Its images (Image)."""
        return list(self._ask("ImageService", "ListImages").images)

    def _greet(self, packages: tuple[str, ...]) -> tuple[str, Any]:
        for package in packages:
            try:
                return package, self._ask("RuntimeService", "Version", package=package)
            except CriError as error:
                if not error.unknown:
                    raise
        raise CriError(f"{self._socket} does not speak CRI", unknown=True)

    def _ask(self, service: str, method: str, *, package: str = "", **fields: Any) -> Any:
        import grpc

        known = messages()
        call = self._channel.unary_unary(
            f"/{package or self._package}.{service}/{method}",
            request_serializer=known[f"{method}Request"].SerializeToString,
            response_deserializer=known[f"{method}Response"].FromString,
        )
        try:
            return call(known[f"{method}Request"](**fields), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            unknown = error.code() is grpc.StatusCode.UNIMPLEMENTED
            raise CriError(f"{self._socket} does not answer: {error.details()}", unknown=unknown) from None
