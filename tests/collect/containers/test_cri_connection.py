"""The small client for gRPC: next to the library's server, and to runtimes that are silent, gone or mad."""

import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.collect.containers.cri import CriConnection, messages
from exhume.collect.sources.container_events import CriEventSource
from exhume.model.clock import NANOS, Tick
from exhume.procfs.host import Host

MANY = 20_000


class Runtime(grpc.GenericRpcHandler):
    """Answers as a runtime of a name does that knows one version of the interface; `asked` is what it was asked."""

    def __init__(self, name: str, package: str) -> None:
        self.name, self.package = name, package
        self.asked: list[str] = []

    def service(self, details: Any) -> Any:
        package, method = details.method.rpartition("/")[0], details.method.rpartition("/")[2]
        self.asked.append(method)
        known = messages()
        answers = {
            "Version": known["VersionResponse"](runtime_name=self.name),
            "ListContainers": known["ListContainersResponse"](
                containers=[known["Container"](id=f"{n:064x}", state=1) for n in range(MANY)]
            ),
        }
        if package != f"/{self.package}.RuntimeService" or method not in answers:
            return None
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: answers[method], response_serializer=lambda answer: answer.SerializeToString()
        )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[grpc.Server, Path]]:
    own = grpc.server(ThreadPoolExecutor(2))
    path = tmp_path / "c.sock"
    own.add_insecure_port(f"unix:{path}")
    own.start()
    yield own, path
    own.stop(None)


def answers_of(connection: CriConnection, count: int) -> dict[int, Any]:
    found: dict[int, Any] = {}
    until = time.monotonic() + 20
    while len(found) < count and time.monotonic() < until:
        found |= connection.receive()
        time.sleep(0.01)
    return found


def test_a_long_answer_comes_in_many_parts(server: tuple[grpc.Server, Path]) -> None:
    own, path = server
    own.add_generic_rpc_handlers((Runtime("containerd", "runtime.v1"),))
    connection = CriConnection(path)
    asked, unknown = connection.ask("ListContainers"), connection.ask("ListPodSandbox")
    found = answers_of(connection, 2)
    connection.close()
    assert len(found[asked].containers) == MANY and found[unknown] is None


def rounds(source: CriEventSource, count: int, first: int = 0) -> list[str]:
    """The kinds of the rows of some ticks, as far apart as rounds are."""
    kinds: list[str] = []
    for number in range(first, first + count):
        end = 10**12 + number * 6 * NANOS
        kinds += source.read(Tick(number, end - NANOS, end, end)).get("events", {}).get("kind", [])
        time.sleep(0.05)
    return kinds


def test_the_older_name_of_the_interface_is_tried(server: tuple[grpc.Server, Path]) -> None:
    own, path = server
    runtime = Runtime("containerd", "runtime.v1alpha2")
    own.add_generic_rpc_handlers((runtime,))
    source = CriEventSource(Host(), path)
    for number in range(400):
        # Many reads at the same moment: a busy machine gets a second for each round's answer.
        rounds(source, 1, number // 20)
        if "ListContainers" in runtime.asked:
            break
    source.close()
    assert runtime.asked[0] == "Version" and "ListContainers" in runtime.asked


def test_a_runtime_that_docker_is_behind_is_left_to_docker(server: tuple[grpc.Server, Path]) -> None:
    own, path = server
    runtime = Runtime("docker", "runtime.v1")
    own.add_generic_rpc_handlers((runtime,))
    source = CriEventSource(Host(), path)
    for _ in range(60):
        # The same moment: no patience is lost.
        assert rounds(source, 1) == []
    assert runtime.asked == ["Version"]
    assert rounds(source, 20, 1) == []
    source.close()
    assert runtime.asked == ["Version"]


def test_a_runtime_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "c.sock"))
        listening.listen(8)
        source = CriEventSource(Host(), tmp_path / "c.sock")
        for number in range(10):
            began = time.monotonic()
            assert rounds(source, 1, number) == []
            assert time.monotonic() - began < 1.0
        source.close()


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">IBI", len(body) << 8 | kind, flags, stream) + body


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=64),
            st.tuples(st.sampled_from(range(12)), st.integers(0, 255), st.integers(0, 5), st.binary(max_size=40)),
        ),
        max_size=8,
    )
)
def test_no_answer_breaks_it(tmp_path_factory: pytest.TempPathFactory, said: list[Any]) -> None:
    """Frames of every type with any content, and what is no frame at all."""
    path = tmp_path_factory.mktemp("cri") / "c.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(1)
        connection = CriConnection(path)
        asked = connection.ask("ListContainers")
        other, _ = listening.accept()
        for each in said:
            other.sendall(each if isinstance(each, bytes) else frame(*each))
        connection.receive()
        other.close()
        found = connection.receive()
        connection.close()
    assert connection.ended and set(found) <= {asked}
