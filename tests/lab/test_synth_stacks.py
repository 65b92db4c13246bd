"""The stacks of a synthetic node are call chains that its programs and its kernel have."""

import re

import numpy as np
import pytest

from exhume.lab.synth.kernel_paths import KERNEL_THREADS, SYSCALLS
from exhume.lab.synth.stacks import SYSTEM, Catalogue, call_rules
from exhume.lab.synth.workload import PROGRAMS, ROLES

# Functions that came after Linux 5.4.
LATER = re.compile(r"folio|^asm_|_sys_clone3|do_vmi_|filemap_read|kernfs_fop_read_iter|do_sys_openat2|lru_gen")


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue(seed=3)


def names(catalogue: Catalogue, stack: int) -> list[str]:
    first, last = catalogue.offsets[stack], catalogue.offsets[stack + 1]
    return [catalogue.frames[index][2] for index in catalogue.flat[first:last]]


def stacks_of(catalogue: Catalogue, comm: str) -> list[list[str]]:
    rows = [row for row, role in enumerate(ROLES) if role.comm == comm]
    return [names(catalogue, int(stack)) for row in rows for stack in np.unique(catalogue.draw[row])]


def test_every_rule_and_system_call_that_a_path_names_exists():
    rules = call_rules()
    tokens = {token for paths in rules.values() for path in paths for token in path.split()}
    assert {token[1:] for token in tokens if token.startswith("$")} <= rules.keys()
    assert {token[1:] for token in tokens if token.startswith("@")} <= SYSCALLS.keys()


def test_every_thread_has_code_of_its_own():
    kernel = {role.comm for role in ROLES if role.program.kernel}
    assert kernel == KERNEL_THREADS.keys() | {"swapper"}
    assert {f"/{role.comm}" for role in ROLES if not role.program.kernel} <= call_rules().keys()


def test_the_incident_is_cadvisor_reading_memory_numa_stat(catalogue: Catalogue):
    fs = "github.com/opencontainers/runc/libcontainer/cgroups/fs"
    chain = [
        *("runtime.goexit.abi0", "github.com/google/cadvisor/manager.(*containerData).housekeeping"),
        *(f"{fs}.(*MemoryGroup).GetStats", f"{fs}.getPageUsageByNUMA", "bufio.(*Scanner).Scan", "os.(*File).Read"),
        *("syscall.Syscall", "entry_SYSCALL_64_after_hwframe", "do_syscall_64", "ksys_read", "vfs_read"),
        *("kernfs_fop_read", "seq_read", "cgroup_seqfile_show", "memcg_numa_stat_show"),
    ]
    for stack in catalogue.zombie_walk:
        found = names(catalogue, int(stack))
        places = [found.index(name) for name in chain]
        assert places == sorted(places) and places[0] == 0


def test_go_code_is_entered_through_the_runtime_and_leaves_through_a_system_call(catalogue: Catalogue):
    for found in stacks_of(catalogue, "kubelet"):
        assert found[0] in ("runtime.goexit.abi0", "runtime.mcall", "runtime.mstart.abi0")
        if "strconv.ParseUint" in found:
            assert found[found.index("strconv.ParseUint") - 1].startswith("github.com/")
        if "entry_SYSCALL_64_after_hwframe" in found:
            caller = found[found.index("entry_SYSCALL_64_after_hwframe") - 1]
            assert caller in ("syscall.Syscall", "syscall.Syscall6") or caller.startswith("runtime.")


def test_python_reaches_cuda_through_torch(catalogue: Catalogue):
    launches = [found for found in stacks_of(catalogue, "pt_main_thread") if "cudaLaunchKernel" in found]
    assert launches
    for found in launches:
        script, launch = found.index("py::main:/app/train.py"), found.index("cudaLaunchKernel")
        between = found[script:launch]
        assert any(name.startswith(("at::", "c10d::")) for name in between), found
        assert found.index("cuLaunchKernel") > launch


def test_the_kernel_is_the_one_that_the_recording_names(catalogue: Catalogue):
    assert [name for kind, _, name in catalogue.frames if kind == "kernel" and LATER.search(name)] == []


@pytest.mark.parametrize("role", [role for role in ROLES if role.stacks >= 400], ids=lambda role: role.comm)
def test_a_program_is_in_the_kernel_as_often_as_it_says(catalogue: Catalogue, role):
    share = (catalogue.kind[catalogue.draw[ROLES.index(role)]] == SYSTEM).mean()
    assert share == pytest.approx(role.program.in_kernel, abs=0.1)


def test_units_are_those_of_a_node():
    units = {program.cgroup for program in PROGRAMS if not (program.pod or program.kernel)}
    services = "kubelet containerd systemd-journald docker cron ecs"
    assert units == {"/init.scope", *(f"/system.slice/{name}.service" for name in services.split())}
