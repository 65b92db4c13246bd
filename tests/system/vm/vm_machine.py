"""A virtual machine to give commands to. Its processor is emulated, everywhere the same: KVM is not to be had in many
places, and half working in some."""

import contextlib
import itertools
import json
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.parts import need
from tests.system.vm.vm_disks import PYTHON, boot_archive, python_disk, systemd_disk, work_disk
from tests.system.vm.vm_kernel import KernelChoice, cache_directory, guest_kernel

# How long it may take on a busy host: an emulated machine that gets a tenth of a core is a hundred times slower than
# the host, and makes progress. Only what hangs reaches these.
BOOT_S = 900.0
SYSTEMD_BOOT_S = 1800.0
COMMAND_S = 1200.0
STOP_S = 15.0
MEMORY_MIB = 1536
CORES = 2
CONSOLE_TAIL = 2000


class GuestError(AssertionError):
    """The machine did not do what it was reported; the message ends with what its console said last."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command in the machine returned and wrote."""

    code: int | None
    out: str
    err: str


class Machine:
    """One boot of the virtual machine, from entering to leaving the context."""

    def __init__(self, kernel: KernelChoice, systemd_tree: Path | None = None) -> None:
        """With a tree, systemd is its first process, otherwise busybox."""
        self.kernel = kernel
        self._tree = systemd_tree
        self._ids = itertools.count(1)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            self._directory = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="exhume-vm-", dir="/var/tmp")))
            self._qemu = self._start()
            undo.callback(self._stop)
            self._line = undo.enter_context(self._connected())
            self._received = bytearray()
            self.release = str(self._next_object(BOOT_S if self._tree is None else SYSTEMD_BOOT_S)["ready"])
            self._undo = undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._line.sendall(b"null\n")
        self._undo.close()

    def run(self, *words: str, seconds: float = COMMAND_S) -> Answer:
        """Run a command and wait for it."""
        order = {"id": next(self._ids), "words": words, "seconds": seconds}
        self._line.sendall(json.dumps(order).encode() + b"\n")
        # The answer to a command that was not waited for may come first.
        while (reported := self._next_object(seconds + 60)).get("id") != order["id"]:
            pass
        return Answer(reported["code"], reported["out"], reported["err"])

    def shell(self, text: str, seconds: float = COMMAND_S) -> str:
        """What a line of shell writes; it has to succeed."""
        answer = self.run("/bin/busybox", "sh", "-ec", text, seconds=seconds)
        if answer.code != 0:
            raise GuestError(f"{text}: exit code {answer.code}: {answer.out}{answer.err}")
        return answer.out

    def run_exhume(self, *words: str, codes: tuple[int, ...] = (0,), seconds: float = COMMAND_S) -> Answer:
        """The program, as its users run it."""
        answer = self.run(str(PYTHON), "-m", "exhume.cli.main", *words, seconds=seconds)
        if answer.code not in codes:
            raise GuestError(f"exhume {' '.join(words)}: exit code {answer.code}: {answer.err}")
        return answer

    def exhume(self, *words: str, codes: tuple[int, ...] = (0,), seconds: float = COMMAND_S) -> str:
        """What the program writes."""
        return self.run_exhume(*words, codes=codes, seconds=seconds).out

    def exhume_json(self, *words: str, codes: tuple[int, ...] = (0,), seconds: float = COMMAND_S) -> dict[str, Any]:
        answer = self.run_exhume(*words, "--json", codes=codes, seconds=seconds)
        try:
            return dict(json.loads(answer.out))
        except ValueError:
            raise GuestError(f"exhume {' '.join(words)} wrote no JSON: {answer.out}{answer.err}") from None

    def _start(self) -> "subprocess.Popen[bytes]":
        cache = cache_directory()
        kernel = guest_kernel(cache, self.kernel)
        # What systemd writes to its root is forgotten with the machine.
        root = (
            (python_disk(cache), "readonly=on")
            if self._tree is None
            else (systemd_disk(cache, self._tree), "snapshot=on")
        )
        disks = (root, (work_disk(self._directory), "cache=unsafe"))
        # Should this process be killed, the machine goes with it.
        words = [need("setpriv"), "--pdeathsig", "KILL", need("qemu-system-x86_64")]
        # The oldest processor that numpy's packages run on: emulated AVX2 sorts wrongly in some versions of qemu.
        words += ["-accel", "tcg,thread=multi", "-cpu", "Nehalem"]
        words += ["-smp", str(CORES), "-m", str(MEMORY_MIB), "-nic", "none", "-display", "none", "-no-reboot"]
        words += ["-kernel", str(kernel.image), "-initrd", str(boot_archive(kernel, self._directory))]
        parameters = f"console=ttyS0 quiet panic=-1 cgroup_version={self.kernel.cgroup_version}"
        words += ["-append", parameters if self._tree is None else f"{parameters} guest_init=systemd"]
        for path, options in disks:
            words += ["-drive", f"file={path},format=raw,if=virtio,{options}"]
        words += ["-serial", f"file:{self._console}", "-serial", f"unix:{self._socket},server=on,wait=off"]
        with (self._directory / "qemu").open("wb") as said:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def _stop(self) -> None:
        try:
            self._qemu.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._qemu.kill()
            self._qemu.wait()

    def _connected(self) -> socket.socket:
        deadline = time.monotonic() + STOP_S
        while True:
            line = socket.socket(socket.AF_UNIX)
            try:
                line.connect(str(self._socket))
                return line
            except OSError as error:
                line.close()
                if self._qemu.poll() is not None or time.monotonic() > deadline:
                    self._qemu.kill()
                    raise self._trouble("the virtual machine doesn't start") from error
            time.sleep(0.05)

    def _next_object(self, seconds: float) -> dict[str, Any]:
        """The next line that is an object; whatever else is on the line, such as the firmware's words, is passed."""
        deadline = time.monotonic() + seconds
        while True:
            while b"\n" in self._received:
                text, _, rest = bytes(self._received).partition(b"\n")
                self._received[:] = rest
                if text.startswith(b"{"):
                    return dict(json.loads(text))
            self._line.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                received = self._line.recv(1 << 16)
            except TimeoutError:
                self._qemu.kill()
                raise self._trouble(f"the virtual machine said nothing for {seconds:.0f} s") from None
            if not received:
                raise self._trouble("the virtual machine ended")
            self._received += received

    def _trouble(self, what: str) -> GuestError:
        said = (self._directory / "qemu").read_text(errors="replace")
        console = self._console.read_text(errors="replace") if self._console.exists() else ""
        return GuestError(f"{what}\n{said}{console[-CONSOLE_TAIL:]}")

    @property
    def _console(self) -> Path:
        return self._directory / "console"

    @property
    def _socket(self) -> Path:
        return self._directory / "line"
