"""A containerd of the test's own, with its CRI: all its files below a directory, its pods below a cgroup of their own.

Pods and containers are made as kubelet makes them: a new container for each attempt.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.parts import SEARCH_PATH, need
from tests.system.runtimes.runtime_parts import PATIENCE_S, at_work, remove_cgroup
from tests.system.zombies.own_docker import until

from exhume.collect.containers.cri import Cri, CriError

# A limited machine lets no process lower a score.
_CONFIG = """
version = 2
root = "{work}/root"
disabled_plugins = {off}
state = "{work}/state"
[grpc]
  address = "{work}/c.sock"
[ttrpc]
  address = "{work}/t.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{work}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{work}/runc"
"""


class OwnContainerd:
    """containerd at `socket`; `image` holds a static busybox, which also holds pods together."""

    def __init__(self, work: Path, image: str) -> None:
        self.work, self.image = work, image
        self.socket = work / "c.sock"
        self.cgroup = work.name
        self._pods: dict[str, Any] = {}

    def speaks_cri(self) -> bool:
        with suppress(CriError), Cri(self.socket):
            return True
        return False

    def log_of(self, pod_name: str, name: str, attempt: int) -> str:
        """What the container of an attempt has written so far."""
        path = self.work / "logs" / pod_name / f"{name}-{attempt}.log"
        return path.read_text() if path.exists() else ""

    def run_pod(self, name: str, uid: str, labels: dict[str, str], annotations: dict[str, str]) -> str:
        """Its sandbox, in the network of the machine; the id."""
        known = self._messages
        host = known["NamespaceOption"](network=2, pid=1)
        config = known["PodSandboxConfig"](
            metadata=known["PodSandboxMetadata"](name=name, uid=uid, namespace="shop", attempt=0),
            hostname="",
            log_directory=str(self.work / "logs" / name),
            labels=labels,
            annotations=annotations,
            linux=known["LinuxPodSandboxConfig"](
                cgroup_parent=f"/{self.cgroup}",
                security_context=known["LinuxSandboxSecurityContext"](namespace_options=host),
            ),
        )
        pod = self._order("RunPodSandbox", config=config).pod_sandbox_id
        self._pods[pod] = config
        return str(pod)

    def start(self, pod: str, name: str, script: str, attempt: int, memory: int = 0) -> str:
        """The container of an attempt; its id."""
        known = self._messages
        spaces = known["LinuxContainerSecurityContext"](namespace_options=known["NamespaceOption"](network=2, pid=1))
        config = known["ContainerConfig"](
            metadata=known["ContainerMetadata"](name=name, attempt=attempt),
            image=known["ImageSpec"](image=self.image),
            command=["/bin/busybox", "sh", "-c", script],
            log_path=f"{name}-{attempt}.log",
            linux=known["LinuxContainerConfig"](
                resources=known["LinuxContainerResources"](memory_limit_in_bytes=memory), security_context=spaces
            ),
        )
        made = self._order("CreateContainer", pod_sandbox_id=pod, config=config, sandbox_config=self._pods[pod])
        self._order("StartContainer", container_id=made.container_id)
        return str(made.container_id)

    def stop(self, container: str, timeout: int) -> None:
        self._order("StopContainer", container_id=container, timeout=timeout)

    def remove(self, container: str) -> None:
        self._order("RemoveContainer", container_id=container)

    def remove_pods(self) -> None:
        for pod in self._pods:
            self._order("StopPodSandbox", pod_sandbox_id=pod)
            self._order("RemovePodSandbox", pod_sandbox_id=pod)

    def import_busybox(self) -> None:
        archive = self.work / "image.tar"
        _pack(archive, self.image)
        args = ["ctr", "-a", str(self.socket), "-n", "k8s.io", "images", "import"]
        args += ["--snapshotter", "native", str(archive)]
        done = subprocess.run(args, env=self.environment, capture_output=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": SEARCH_PATH}

    @property
    def _messages(self) -> dict[str, Any]:
        return messages_of(Path(__file__).with_name("orders.proto"), self.work)

    def _order(self, method: str, **fields: Any) -> Any:
        import grpc

        known = self._messages
        options = (("grpc.default_authority", "localhost"),)
        with grpc.insecure_channel(f"unix:{self.socket}", options=options) as channel:
            call = channel.unary_unary(
                f"/runtime.v1.RuntimeService/{method}",
                request_serializer=known[f"{method}Request"].SerializeToString,
                response_deserializer=known[f"{method}Response"].FromString,
            )
            return call(known[f"{method}Request"](**fields), timeout=PATIENCE_S)


_KNOWN: dict[Path, dict[str, Any]] = {}


def messages_of(proto: Path, work: Path) -> dict[str, Any]:
    """The classes of the messages that a file describes, compiled again."""
    from google.protobuf import descriptor_pool, message_factory

    if proto not in _KNOWN:
        pool = descriptor_pool.DescriptorPool()
        for file in compiled(proto, work).file:
            pool.Add(file)
            names = [message.name for message in file.message_type]
            kinds = {name: pool.FindMessageTypeByName(f"{file.package}.{name}") for name in names}
            _KNOWN[proto] = {name: message_factory.GetMessageClass(kind) for name, kind in kinds.items()}
    return _KNOWN[proto]


def compiled(proto: Path, work: Path) -> Any:
    """What the compiler makes of a file."""
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    out = work / "compiled.protoset"
    assert protoc.main(["protoc", f"--proto_path={proto.parent}", f"--descriptor_set_out={out}", proto.name]) == 0
    return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


@contextmanager
def own_containerd(image: str, off: tuple[str, ...] = ()) -> Iterator[OwnContainerd]:
    """A containerd that leaves nothing behind, without the plugins that are off."""
    # Paths of sockets have to be short.
    work = Path(tempfile.mkdtemp(prefix="exhume-ctrd-", dir="/var/tmp"))
    own = OwnContainerd(work, image)
    (work / "config.toml").write_text(_CONFIG.format(work=work, image=image, off=json.dumps(off)))
    elsewhere = [path for path in map(Path, ("/run/containerd/s", "/run/containerd")) if not path.exists()]
    with (work / "log").open("wb") as log:
        args = [need("containerd"), "-c", str(work / "config.toml")]
        daemon = subprocess.Popen(args, env=own.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        # Its CRI is not ready as soon as the rest is.
        ready = own.socket.exists if off else own.speaks_cri
        until("containerd answers", lambda: daemon.poll() is not None or ready(), PATIENCE_S)
        assert daemon.poll() is None, (work / "log").read_text()
        own.import_busybox()
        yield own
    finally:
        try:
            if daemon.poll() is None:
                own.remove_pods()
        finally:
            daemon.terminate()
            daemon.wait(PATIENCE_S)
            # What holds a container that ended goes a moment after it.
            until("its helpers have ended", lambda: not at_work(work), PATIENCE_S)
            remove_cgroup(own.cgroup)
            for path in elsewhere:
                with suppress(OSError):
                    path.rmdir()
    assert not any(str(work) in line for line in Path("/proc/self/mountinfo").read_text().splitlines())
    shutil.rmtree(work)


def _pack(archive: Path, image: str) -> None:
    """An image with nothing but a static busybox in it, as `docker save` writes them."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(Path(need("busybox")).resolve(), "bin/busybox")
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/bin/busybox", "sleep", "86400"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    files = {
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer.getvalue(),
        "manifest.json": json.dumps([{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]).encode(),
    }
    with tarfile.open(archive, "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
