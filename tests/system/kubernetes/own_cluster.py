"""A cluster of the tests' own, with one node: real etcd, API server, controllers, scheduler, containerd and kubelet.

Everything listens on loopback and keeps its files below one directory, apart from what kubelet insists on:
/var/log/pods, /var/log/containers, the cgroups `kubepods*` and three sysctls. All of it goes at the end.
"""

import hashlib
import io
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.parts import SEARCH_PATH, missing, need
from tests.system.kubernetes.binaries import SERVERS, programs

NODE = "node-1"
PAUSE, BUSYBOX = "plain.test/pause:1", "plain.test/busybox:1"
SUBNET = "10.177.0"
# On a machine that is busy otherwise everything takes many times as long as it does alone.
PATIENCE_S = 180
_SYSCTLS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
_LOGS = (Path("/var/log/pods"), Path("/var/log/containers"))
_CGROUPS = Path("/sys/fs/cgroup")
DOCKERSHIM = Path("/var/run/dockershim.sock")
# What runtimes make outside of the directory of their own, innermost first.
_ELSEWHERE = (
    *map(Path, ("/run/containerd/s", "/run/containerd")),
    *map(Path, ("/etc/docker/key.json", "/etc/docker", "/run/docker/plugins", "/run/docker")),
    DOCKERSHIM,
)

_CONTAINERD = """
version = 2
root = "{work}/containerd"
state = "{work}/s"
oom_score = 0
[grpc]
  address = "{work}/r/containerd.sock"
[ttrpc]
  address = "{work}/t.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{work}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{work}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{work}/runc"
        BinaryName = "{work}/runc-without-scores"
"""
# kubelet asks for an OOM score of -998 for the containers that hold pods; root of a limited machine may not set one
# below 0, and runc fails then.
_RUNC = """#!/bin/sh
previous= bundle=
for argument in "$@"; do
  case "$previous" in --bundle|-b) bundle=$argument;; esac
  previous=$argument
done
config=$bundle/config.json
[ -n "$bundle" ] && [ -f "$config" ] && sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$config"
exec {runc} "$@"
"""
_PAUSE = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void stop(int s) { _exit(0); }
static void reap(int s) { while (waitpid(-1, 0, WNOHANG) > 0); }
int main(void) { signal(SIGINT, stop); signal(SIGTERM, stop); signal(SIGCHLD, reap); for (;;) pause(); }
"""


def until(what: str, happened: Callable[[], object], patience: float = PATIENCE_S) -> None:
    """Wait until it happened; fails when it doesn't."""
    deadline = time.monotonic() + patience
    while not happened():
        assert time.monotonic() < deadline, f"not within {patience:.0f} s: {what}"
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes], patience: float) -> None:
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Cluster:
    """The control plane: an API server at `address`, and `kubectl` for it. `work` has all files."""

    def __init__(self, work: Path, binaries: Path) -> None:
        self.work, self.binaries = work, binaries
        self.kubeconfig = work / "kubeconfig"
        self.token = secrets.token_hex(16)
        self.port, self._etcd, self._peers = _free_ports(3)
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.binaries}:{SEARCH_PATH}"
        return {**os.environ, "PATH": path, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.work)}

    def start_control_plane(self) -> None:
        """etcd and the API server first; it is ready when this returns."""
        work = self.work
        subprocess.run([need("openssl"), "genrsa", "-out", work / "sa.key", "2048"], check=True, capture_output=True)
        (work / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")
        self.kubeconfig.write_text(json.dumps(self._kubeconfig()))
        self.kubeconfig.chmod(0o600)
        clients, peers = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peers}"
        etcd = ["--name=own", f"--data-dir={work}/etcd", f"--listen-client-urls={clients}"]
        etcd += [f"--advertise-client-urls={clients}", f"--listen-peer-urls={peers}", "--unsafe-no-fsync"]
        etcd += [f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=own={peers}"]
        self.start("etcd", [need("etcd"), *etcd])
        api = [f"--etcd-servers={clients}", "--bind-address=127.0.0.1", f"--secure-port={self.port}"]
        api += [f"--cert-dir={work}/api", f"--token-auth-file={work}/tokens.csv", "--authorization-mode=RBAC"]
        api += ["--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://own"]
        api += [f"--service-account-{use}-file={work}/sa.key" for use in ("key", "signing-key")]
        api += ["--allow-privileged=true", "--endpoint-reconciler-type=none"]
        self.start("kube-apiserver", [str(self.binaries / "kube-apiserver"), *api])
        until("the API server is ready", lambda: self._checked().kubectl_ok("get", "--raw", "/readyz"))

    def start_controllers(self) -> None:
        """Controllers (deployments, jobs, ...) and the scheduler."""
        # The API server's certificate, in one file with the authority that signed it: pods verify it by that.
        authority = f"--root-ca-file={self.work}/api/apiserver.crt"
        common = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1", "--port=0"]
        for name, more in (
            ("kube-controller-manager", [f"--service-account-private-key-file={self.work}/sa.key", authority]),
            ("kube-scheduler", []),
        ):
            secure = f"--secure-port={_free_ports(1)[0]}"
            args = [*common, *more, secure, f"--cert-dir={self.work}/{name}"]
            self.start(name, [str(self.binaries / name), *args])

    def start(self, name: str, argv: Sequence[str]) -> None:
        with (self.work / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(
                argv,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.work,
            )
        self._running.append((name, started))

    def log(self, name: str) -> str:
        return (self.work / f"{name}.log").read_text(errors="replace")

    def kubectl(self, *args: str, stdin: str | None = None, patience: float = PATIENCE_S) -> str:
        """What kubectl prints; fails where it does."""
        done = self._kubectl(args, stdin, patience)
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}"
        return done.stdout

    def kubectl_ok(self, *args: str, stdin: str | None = None) -> bool:
        return self._kubectl(args, stdin, PATIENCE_S).returncode == 0

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, *args: str) -> Any:
        return json.loads(self.kubectl("get", *args, "-o", "json"))

    def stop(self) -> None:
        for _, process in reversed(self._running):
            _end(process, 20)
        self._running.clear()

    def _checked(self) -> "Cluster":
        for name, process in self._running:
            assert process.poll() is None, f"{name} ended: {self.log(name)[-2000:]}"
        return self

    def _kubectl(self, args: Sequence[str], stdin: str | None, patience: float) -> subprocess.CompletedProcess[str]:
        command = [str(self.binaries / "kubectl"), f"--cache-dir={self.work}/kubectl", *args]
        return subprocess.run(
            command, env=self.environment, input=stdin, capture_output=True, text=True, timeout=patience, check=False
        )

    def _kubeconfig(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "own", "cluster": {"server": self.address, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "own", "context": {"cluster": "own", "user": "admin"}}],
            "current-context": "own",
        }


class Node(Cluster):
    """The same with a node: containerd and kubelet. Images are imported from archives; there is no registry."""

    daemon = "containerd"

    @property
    def runtime(self) -> Path:
        return self.work / "r/containerd.sock"

    def start_runtime(self) -> None:
        work = self.work
        self._write_runc()
        # Without a network the runtime is not ready; pods that are not in the node's get an address that leads nowhere.
        (work / "cni").mkdir()
        addresses = {"type": "host-local", "ranges": [[{"subnet": f"{SUBNET}.0/24"}]], "dataDir": f"{work}/addresses"}
        plugin = {"type": "ptp", "ipMasq": False, "ipam": addresses}
        network = {"cniVersion": "0.3.1", "name": "own", "plugins": [plugin]}
        (work / "cni/10-own.conflist").write_text(json.dumps(network))
        (work / "containerd.toml").write_text(_CONTAINERD.format(work=work, pause=PAUSE))
        self.start("containerd", [need("containerd"), "--config", str(work / "containerd.toml")])
        until("containerd answers", lambda: self._ctr("version").returncode == 0)
        self.import_image(_pause_image(work))
        self.import_image(_busybox_image(work))

    def _write_runc(self) -> Path:
        wrapper = self.work / "runc-without-scores"
        wrapper.write_text(_RUNC.format(runc=need("runc")))
        wrapper.chmod(0o755)
        return wrapper

    def _runtime_args(self) -> list[str]:
        endpoint = f"--container-runtime-endpoint=unix://{self.runtime}"
        return ["--container-runtime=remote", endpoint, f"--containerd={self.runtime}"]

    def import_image(self, archive: Path) -> None:
        done = self._ctr("-n", "k8s.io", "images", "import", str(archive))
        assert done.returncode == 0, done.stderr

    def start_kubelet(self) -> None:
        port, ports = _free_ports(1)[0], _free_ports(2)
        self.kubelet_port = port
        work = self.work
        args = [f"--kubeconfig={self.kubeconfig}", *self._runtime_args()]
        args += [f"--root-dir={work}/kubelet-root", f"--hostname-override={NODE}", f"--node-ip={_own_address()}"]
        args += ["--address=127.0.0.1", f"--port={port}", "--read-only-port=0", f"--cert-dir={work}/kubelet-certs"]
        args += [f"--healthz-port={ports[0]}", "--cgroup-driver=cgroupfs", "--fail-swap-on=false"]
        args += [f"--pod-infra-container-image={PAUSE}", f"--pod-manifest-path={work}/manifests"]
        args += ["--anonymous-auth=true", "--authorization-mode=AlwaysAllow", "--cluster-dns=10.0.0.10"]
        args += ["--eviction-hard=memory.available<50Mi,nodefs.available<1%,imagefs.available<1%"]
        args += ["--image-gc-high-threshold=100", "--image-gc-low-threshold=99", "--make-iptables-util-chains=false"]
        args += [f"--volume-plugin-dir={work}/volume-plugins", f"--seccomp-profile-root={work}/seccomp", "--v=1"]
        (work / "manifests").mkdir()
        self.start("kubelet", [str(self.binaries / "kubelet"), *args])
        until("the node is ready", lambda: self._checked() and self.ready())

    def ready(self) -> bool:
        with suppress(AssertionError):
            conditions = self.get("node", NODE)["status"]["conditions"]
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return False

    def wait_for_pods(self, namespace: str, *selectors: str) -> None:
        """Until there are pods of each, all of them running."""

        def running(selector: str) -> bool:
            found = self.get("pods", "-n", namespace, "-l", selector)["items"]
            return bool(found) and all(each["status"].get("phase") == "Running" for each in found)

        for selector in selectors:
            until(f"pods of {selector} run", lambda selector=selector: running(selector))

    @property
    def tracing(self) -> Path:
        """tracefs for pods, at a place of our own: this machine may have it nowhere."""
        point = self.work / "tracing"
        if not point.exists():
            point.mkdir()
            subprocess.run([need("mount"), "-t", "tracefs", "tracefs", str(point)], check=True)
        return point

    @property
    def kubelet_pid(self) -> int:
        return next(process.pid for name, process in self._running if name == "kubelet")

    def stop(self) -> None:
        by_name = dict(self._running)
        if (kubelet := by_name.get("kubelet")) is not None:
            _end(kubelet, 30)
            self._running = [(name, process) for name, process in self._running if name != "kubelet"]
        if self.daemon in by_name:
            self._end_containers()
        super().stop()
        self._end_shims()

    def _end_containers(self) -> None:
        for _ in range(2):
            for task in self._ctr("-n", "k8s.io", "tasks", "ls", "-q").stdout.split():
                self._ctr("-n", "k8s.io", "tasks", "kill", "-s", "9", task)
                self._ctr("-n", "k8s.io", "tasks", "rm", "-f", task)
        for container in self._ctr("-n", "k8s.io", "containers", "ls", "-q").stdout.split():
            self._ctr("-n", "k8s.io", "containers", "rm", container)

    def _end_shims(self) -> None:
        """Those that outlived their runtime, by its socket in their command line."""
        mark = f"{self.work}/".encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                command = path.read_bytes()
                if b"containerd-shim" in command and mark in command:
                    os.kill(int(path.parent.name), signal.SIGKILL)

    def _ctr(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [need("ctr"), "-a", str(self.runtime), *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


class DockerNode(Node):
    """The same with Docker behind kubelet's own shim, as nodes had it until Kubernetes 1.24."""

    daemon = "dockerd"

    @property
    def environment(self) -> dict[str, str]:
        known = {name: value for name, value in super().environment.items() if not name.startswith("DOCKER_")}
        return {**known, "DOCKER_HOST": f"unix://{self.work}/d.sock", "DOCKER_CONFIG": str(self.work)}

    @property
    def runtime(self) -> Path:
        return DOCKERSHIM

    def start_runtime(self) -> None:
        work = self.work
        (work / "daemon.json").write_text("{}")
        args = [f"--host=unix://{work}/d.sock", f"--data-root={work}/docker", f"--exec-root={work}/x"]
        args += [f"--pidfile={work}/dockerd.pid", f"--config-file={work}/daemon.json", "--storage-driver=overlay2"]
        args += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        args += ["--exec-opt=native.cgroupdriver=cgroupfs", f"--add-runtime=own={self._write_runc()}"]
        self.start(self.daemon, [need("dockerd"), *args, "--default-runtime=own"])
        until("Docker answers", lambda: self._checked() and self._docker("version").returncode == 0)
        self.import_image(_pause_image(work))
        self.import_image(_busybox_image(work))

    def _runtime_args(self) -> list[str]:
        address = f"unix://{self.work}/d.sock"
        args = [
            "--container-runtime=docker",
            f"--docker-endpoint={address}",
            f"--docker={address}",
            "--network-plugin=",
        ]
        return [*args, f"--experimental-dockershim-root-directory={self.work}/dockershim"]

    def import_image(self, archive: Path) -> None:
        done = self._docker("load", "-q", "-i", str(archive))
        assert done.returncode == 0, done.stderr

    def _end_containers(self) -> None:
        if containers := self._docker("ps", "-aq").stdout.split():
            self._docker("rm", "-f", *containers)

    def _docker(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [need("docker"), *args]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )


@contextmanager
def own_api_server() -> Iterator[Cluster]:
    """An API server with nothing behind it but etcd."""
    binaries = programs(("kube-apiserver",))
    with _directory() as work:
        cluster = Cluster(work, binaries)
        try:
            cluster.start_control_plane()
            yield cluster
        finally:
            cluster.stop()


@contextmanager
def own_node(*images: Path, kind: type[Node] = Node) -> Iterator[Node]:
    """A whole cluster of one node with images from archives, which leaves nothing behind."""
    if os.geteuid() != 0:
        missing("root")
    present = [str(path) for path in _LOGS if path.exists()]
    if present or list(_CGROUPS.glob("*/kubepods")) or list(_CGROUPS.glob("kubepods*")):
        missing("no kubelet of its own: its logs or cgroups are there")
    binaries = programs(SERVERS)
    before = {name: Path("/proc/sys", name).read_text() for name in _SYSCTLS}
    elsewhere = [path for path in _ELSEWHERE if not path.exists()]
    with _directory() as work:
        node = kind(work, binaries)
        try:
            node.start_control_plane()
            node.start_controllers()
            node.start_runtime()
            node.start_kubelet()
            for archive in images:
                node.import_image(archive)
            yield node
        finally:
            try:
                node.stop()
            finally:
                _remove_traces(work, before, elsewhere)


@contextmanager
def _directory() -> Iterator[Path]:
    # Paths of sockets have to be short.
    work = Path(tempfile.mkdtemp(prefix="exhume-k8s-", dir="/var/tmp"))
    try:
        yield work
    finally:
        shutil.rmtree(work)


def unmount_below(directory: Path) -> None:
    """What daemons that were ended left mounted there, the last first."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        point = line.split()[4]
        if point.startswith(f"{directory}/"):
            subprocess.run(["umount", "-l", point], check=False, capture_output=True)


def _remove_traces(work: Path, sysctls: dict[str, str], elsewhere: list[Path]) -> None:
    unmount_below(work)
    links = subprocess.run([need("ip"), "-j", "-4", "addr"], capture_output=True, text=True, check=False).stdout
    for link in json.loads(links or "[]"):
        if any(each.get("local", "").startswith(f"{SUBNET}.") for each in link.get("addr_info", ())):
            subprocess.run([need("ip"), "link", "del", link["ifname"]], check=False, capture_output=True)
    for top in (*_CGROUPS.glob("*/kubepods"), *_CGROUPS.glob("kubepods")):
        for path in sorted(top.rglob("*/"), key=lambda each: len(each.parts), reverse=True):
            with suppress(OSError):
                path.rmdir()
        with suppress(OSError):
            top.rmdir()
    for path in _LOGS:
        shutil.rmtree(path, ignore_errors=True)
    for path in elsewhere:
        with suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()
    for name, value in sysctls.items():
        Path("/proc/sys", name).write_text(value)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _own_address() -> str:
    """The first address that is not of loopback: kubelet takes no other for its node."""
    known = subprocess.run([need("ip"), "-j", "-4", "addr"], capture_output=True, text=True, check=True).stdout
    found = [each["local"] for link in json.loads(known) for each in link["addr_info"] if each["scope"] == "global"]
    if not found:
        missing("a network address other than loopback")
    return str(found[0])


def _pause_image(work: Path) -> Path:
    root = work / "pause"
    root.mkdir()
    (work / "pause.c").write_text(_PAUSE)
    subprocess.run([need("gcc"), "-O2", "-static", "-o", root / "pause", work / "pause.c"], check=True)
    return pack_image(work / "pause.tar", PAUSE, root, ["/pause"])


def _busybox_image(work: Path) -> Path:
    root = work / "busybox"
    for name in ("bin", "tmp", "proc", "sys", "dev", "etc", "var"):
        (root / name).mkdir(parents=True)
    busybox = Path(need("busybox")).resolve()
    shutil.copy2(busybox, root / "bin/busybox")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in set(listed) - {"busybox"}:
        (root / "bin" / name).symlink_to("busybox")
    return pack_image(work / "busybox.tar", BUSYBOX, root, ["/bin/sh"])


def pack_image(archive: Path, name: str, root: Path, command: list[str]) -> Path:
    """A directory as an image of one layer, as `docker save` writes them."""
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        for entry in sorted(root.iterdir()):
            tar.add(entry, entry.name)
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        tar.add(layer, "layer.tar")
        for path, content in (("config.json", config), ("manifest.json", manifest)):
            packed = json.dumps(content).encode()
            entry = tarfile.TarInfo(path)
            entry.size = len(packed)
            tar.addfile(entry, io.BytesIO(packed))
    layer.unlink()
    return archive
