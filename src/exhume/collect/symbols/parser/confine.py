"""Drop everything that parsing does not need: privileges, files, network, access to other processes.

Standard library only. The kernel or a container runtime may refuse any step; refused steps are returned, and the
recorder reports them.
"""

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
import sys

_NOBODY = 65534
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _CLEAR_ALL = 38, 47, 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_MAX_CAPABILITY = 63
# Memory for parsing beyond what the interpreter and numpy use: the largest table needs 110 MB.
_MAX_GROWTH = 256 << 20
_MAX_FILES = 64

# System calls of an interpreter that computes, reads open files and talks over an open socket: x86_64 and aarch64
# (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h; None: not available).
_ALLOWED: dict[str, tuple[int, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "poll": (7, None),
    "lseek": (8, 62),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "setitimer": (38, 103),
    "getpid": (39, 172),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "exit": (60, 93),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "newfstatat": (262, 79),
    "ppoll": (271, 73),
    "getrandom": (318, 278),
    "rseq": (334, 293),
}
# Allowed as long as no memory becomes executable.
_MAPPING = {"mmap": (9, 222), "mprotect": (10, 226)}
_PROT_EXEC = 4
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

# From linux/bpf_common.h and linux/seccomp.h.
_LOAD, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # _REFUSE is EPERM
_NUMBER_AT, _ARCHITECTURE_AT, _THIRD_ARGUMENT_AT = 0, 4, 32


def confine() -> list[str]:
    """Confine this process for good; returns the steps that were refused. All imports must be loaded before."""
    refused: list[str] = []
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:  # noqa: PTH123
        score.write("1000")  # the OOM killer's first choice
    size = int(open("/proc/self/statm", "rb").read().split()[0]) * resource.getpagesize()  # noqa: PTH123, SIM115
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        for capability in range(_MAX_CAPABILITY + 1):
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        try:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        except OSError:
            refused.append("another user")
    libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header, none = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)), bytes(24)
    if libc.capset(header, none):
        refused.append("no capabilities")
    for limit, most in (
        (resource.RLIMIT_AS, size + _MAX_GROWTH),
        (resource.RLIMIT_NOFILE, _MAX_FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(limit, (most, most))
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    # After the change of user, which clears it (kernel/cred.c, commit_creds).
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        refused.append("no_new_privs")
    if not _filter_system_calls(libc):
        refused.append("seccomp")
    return refused


def _filter_system_calls(libc: ctypes.CDLL) -> bool:
    known = _ARCHITECTURES.get(platform.machine())
    if known is None or sys.maxsize < 2**32:
        return False
    column, architecture = known
    allowed = sorted({number for numbers in _ALLOWED.values() if (number := numbers[column]) is not None})
    program = [(_LOAD, 0, 0, _ARCHITECTURE_AT), (_JUMP_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL)]
    program.append((_LOAD, 0, 0, _NUMBER_AT))
    for number in allowed:
        program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    first, second = (numbers[column] for numbers in _MAPPING.values())
    program += [
        (_JUMP_EQUAL, 2, 0, first),
        (_JUMP_EQUAL, 1, 0, second),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _THIRD_ARGUMENT_AT),
        (_JUMP_SET, 0, 1, _PROT_EXEC),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    filters = ctypes.create_string_buffer(struct.pack("<H6xQ", len(program), ctypes.addressof(buffer)))
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, filters, 0, 0) == 0)
