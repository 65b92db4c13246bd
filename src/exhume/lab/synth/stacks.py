"""The stacks of a synthetic node: thousands, built from function names of its programs and kernel call paths."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from exhume.lab.synth import workload as languages
from exhume.lab.synth.workload import Program


def _words(text: str) -> list[str]:
    return text.split()


GO_PACKAGES: Final = _words("""
    k8s.io/kubernetes/pkg/kubelet k8s.io/kubernetes/pkg/kubelet/cm k8s.io/kubernetes/pkg/kubelet/pleg
    k8s.io/client-go/tools/cache k8s.io/apimachinery/pkg/util/wait github.com/google/cadvisor/manager
    github.com/opencontainers/runc/libcontainer/cgroups/fs github.com/containerd/containerd/services/tasks
    github.com/containerd/ttrpc google.golang.org/grpc google.golang.org/grpc/internal/transport
    github.com/prometheus/client_golang/prometheus github.com/prometheus/procfs encoding/json net/http
    compress/flate reflect runtime internal/poll bufio regexp strconv sync syscall os
    google.golang.org/protobuf/proto crypto/tls golang.org/x/net/http2
""")
GO_TYPES: Final = _words("""
    (*Server) (*Manager) (*Client) (*reader) (*Decoder) (*Registry) (*FD) (*loop) (*conn) (*Collector) (*pool)
    (*Stream)
""")
GO_METHODS: Final = _words("""
    Read Write Sync Run Update Collect Gather decode serve handle next flush GetStats housekeeping watch Lock
""")
GO_LEAVES: Final = _words("""
    runtime.mallocgc runtime.scanobject runtime.memmove runtime.mapaccess2_faststr runtime.findrunnable
    runtime.gcDrain runtime.heapBitsSetType runtime.futex runtime.usleep internal/runtime/syscall.Syscall6
    strconv.ParseUint runtime.growslice
""")
PYTHON_MODULES: Final = _words("""
    torch/nn/modules/module.py torch/optim/adamw.py torch/utils/data/dataloader.py torch/distributed/c10d.py
    ray/_private/worker.py ray/rllib/evaluation/sampler.py ray/data/_internal/execution.py
    numpy/core/fromnumeric.py transformers/modeling_llama.py asyncio/events.py threading.py
    pyarrow/parquet/core.py cloudpickle/cloudpickle.py json/decoder.py concurrent/futures/thread.py
""")
PYTHON_FUNCTIONS: Final = _words("""
    forward backward step _call_impl __next__ collate run get put _sample loads dumps apply poll _fetch
""")
PYTHON_INTERPRETER: Final = _words("""
    _PyEval_EvalFrameDefault _PyFunction_Vectorcall PyObject_Call _PyObject_MakeTpCall method_vectorcall
    PyEval_EvalCode
""")
NATIVE_NAMESPACES: Final = _words("""
    at::native c10 torch::autograd ray::core ray::gcs plasma grpc_core boost::asio::detail absl::lts Envoy::Http
    Envoy::Network google::protobuf std::__detail G1 nvidia jemalloc event dict rb_vm
""")
NATIVE_CLASSES: Final = _words("""
    Engine TensorIterator Scheduler Task ConnectionImpl Dispatcher ObjectStore Arena Allocator Codec Buffer Queue
""")
NATIVE_METHODS: Final = _words("""
    run execute dispatch process onData allocate release poll evaluate serialize insert lookup vectorized_loop
""")
NATIVE_LIBRARIES: Final = _words("""
    /opt/conda/lib/libtorch_cpu.so /opt/conda/lib/libc10.so /opt/conda/lib/libcudart.so.12
    /usr/lib/x86_64-linux-gnu/libcuda.so.550.54 /opt/conda/lib/libmkl_core.so.2
    /usr/lib/x86_64-linux-gnu/libstdc++.so.6
""")
NATIVE_LEAVES: Final = _words("""
    __memmove_avx_unaligned_erms _int_malloc _int_free malloc cfree __memset_avx2_erms pthread_mutex_lock
    __memcmp_avx2_movbe
""")
JAVA_PACKAGES: Final = _words("""
    java.util.concurrent org.apache.kafka.common.network io.netty.channel.nio org.springframework.web
    com.fasterxml.jackson.databind org.apache.spark.sql.execution java.util.HashMap sun.nio.ch
    org.apache.lucene.search
""")
JAVA_METHODS: Final = _words("""
    run poll read write handle doFilter serialize getNode select invoke next accept compute encode
""")


SYSCALL = "entry_SYSCALL_64_after_hwframe do_syscall_64"
FAULT = "asm_exc_page_fault exc_page_fault do_user_addr_fault handle_mm_fault __handle_mm_fault"
_SOFTIRQ_PATH = "irq_exit_rcu __irq_exit_rcu __do_softirq"

_TCP_OUT = (
    "tcp_push __tcp_push_pending_frames tcp_write_xmit __tcp_transmit_skb ip_queue_xmit __ip_queue_xmit ip_output"
)
_TO_WIRE = "ip_finish_output2 __dev_queue_xmit dev_hard_start_xmit ena:ena_start_xmit"
_RX = "net_rx_action __napi_poll ena:ena_io_poll ena:ena_clean_rx_irq napi_gro_receive dev_gro_receive"
_TCP_IN = "ip_rcv ip_local_deliver ip_protocol_deliver_rcu tcp_v4_rcv tcp_v4_do_rcv tcp_rcv_established"

SYSCALLS: dict[str, tuple[str, ...]] = {
    "read": (
        "__x64_sys_read ksys_read vfs_read ext4:ext4_file_read_iter generic_file_read_iter filemap_read "
        "copy_page_to_iter",
        "__x64_sys_read ksys_read vfs_read ext4:ext4_file_read_iter filemap_read filemap_get_pages|folio_mark_accessed",
        "__x64_sys_read ksys_read vfs_read seq_read_iter show_stat|meminfo_proc_show|vmstat_show|mounts_show",
        "__x64_sys_read ksys_read vfs_read proc_pid_read proc_single_show do_task_stat "
        "task_cputime|thread_group_cputime",
        "__x64_sys_read ksys_read vfs_read kernfs_fop_read_iter seq_read_iter cgroup_seqfile_show memory_stat_show",
        "__x64_sys_read ksys_read vfs_read pipe_read copy_page_to_iter|__wake_up_sync_key",
        "__x64_sys_pread64 vfs_read ext4:ext4_file_read_iter filemap_read page_cache_ra_unbounded|copy_page_to_iter",
    ),
    "write": (
        "__x64_sys_write ksys_write vfs_write ext4:ext4_file_write_iter ext4:ext4_buffered_write_iter "
        "generic_perform_write ext4:ext4_da_write_begin|ext4:ext4_da_write_end|copy_page_from_iter_atomic",
        "__x64_sys_write ksys_write vfs_write pipe_write alloc_pages|copy_page_from_iter|__wake_up_sync_key",
        "__x64_sys_fsync do_fsync vfs_fsync_range ext4:ext4_sync_file jbd2:jbd2_complete_transaction "
        "jbd2:jbd2_log_wait_commit",
    ),
    "socket": (
        f"__x64_sys_sendto __sys_sendto sock_sendmsg tcp_sendmsg tcp_sendmsg_locked {_TCP_OUT} {_TO_WIRE}",
        "__x64_sys_sendto __sys_sendto sock_sendmsg tcp_sendmsg tcp_sendmsg_locked "
        "skb_copy_datagram_from_iter|sk_stream_alloc_skb",
        f"__x64_sys_sendmsg __sys_sendmsg ___sys_sendmsg sock_sendmsg tcp_sendmsg {_TCP_OUT} nf_hook_slow "
        "nf_conntrack:nf_conntrack_in",
        "__x64_sys_recvfrom __sys_recvfrom sock_recvmsg inet_recvmsg tcp_recvmsg tcp_recvmsg_locked "
        "skb_copy_datagram_iter _copy_to_iter",
        "__x64_sys_recvmsg __sys_recvmsg sock_recvmsg tcp_recvmsg tcp_cleanup_rbuf|tcp_rcv_space_adjust|release_sock",
        "__x64_sys_sendmsg __sys_sendmsg sock_sendmsg unix_stream_sendmsg "
        "sock_alloc_send_pskb|sock_def_readable|skb_copy_datagram_from_iter",
    ),
    "wait": (
        "__x64_sys_futex do_futex futex_wait __futex_wait futex_wait_queue schedule __schedule "
        "finish_task_switch.isra.0",
        "__x64_sys_futex do_futex futex_wake wake_up_q try_to_wake_up _raw_spin_unlock_irqrestore|ttwu_do_activate",
        "__x64_sys_epoll_wait do_epoll_wait ep_poll schedule_hrtimeout_range schedule __schedule "
        "dequeue_task_fair|pick_next_task_fair",
        "__x64_sys_epoll_wait do_epoll_wait ep_poll ep_send_events ep_item_poll sock_poll tcp_poll",
        "__x64_sys_poll do_sys_poll do_poll tcp_poll|pipe_poll|unix_poll|eventfd_poll",
        "__x64_sys_nanosleep hrtimer_nanosleep do_nanosleep schedule __schedule "
        "psi_task_switch|finish_task_switch.isra.0",
        "__x64_sys_sched_yield do_sched_yield schedule __schedule update_curr|pick_next_task_fair",
    ),
    "files": (
        "__x64_sys_openat do_sys_openat2 do_filp_open path_openat link_path_walk walk_component lookup_fast "
        "__d_lookup_rcu",
        "__x64_sys_openat do_sys_openat2 do_filp_open path_openat do_dentry_open "
        "ext4:ext4_file_open|kernfs_fop_open|proc_reg_open",
        "__x64_sys_newfstatat vfs_fstatat vfs_statx filename_lookup path_lookupat link_path_walk "
        "inode_permission|__d_lookup_rcu",
        "__x64_sys_getdents64 iterate_dir ext4:ext4_readdir|kernfs_fop_readdir|proc_pid_readdir filldir64",
        "__x64_sys_close __fput dput|locks_remove_posix|security_file_free",
        "__x64_sys_readlink do_readlinkat user_path_at_empty filename_lookup path_lookupat proc_pid_get_link",
    ),
    "memory": (
        "__x64_sys_munmap __vm_munmap do_vmi_munmap unmap_region unmap_vmas zap_pte_range "
        "page_remove_rmap|free_swap_cache",
        "__x64_sys_munmap __vm_munmap do_vmi_munmap tlb_finish_mmu tlb_batch_pages_flush release_pages "
        "free_unref_page_list",
        "__x64_sys_mmap ksys_mmap_pgoff vm_mmap_pgoff do_mmap mmap_region vma_merge|perf_event_mmap|security_mmap_file",
        "__x64_sys_madvise do_madvise madvise_vma_behavior zap_page_range_single unmap_page_range tlb_flush_mmu "
        "flush_tlb_mm_range",
        "__x64_sys_mprotect do_mprotect_pkey mprotect_fixup change_protection change_pte_range",
    ),
    "tasks": (
        "__x64_sys_clone kernel_clone copy_process dup_mm dup_mmap copy_page_range copy_pte_range",
        "__x64_sys_clone3 kernel_clone copy_process dup_task_struct|cgroup_can_fork|alloc_pid|sched_fork",
        "__x64_sys_execve do_execveat_common bprm_execve load_elf_binary elf_map|begin_new_exec|setup_arg_pages",
        "__x64_sys_exit_group do_group_exit do_exit mmput exit_mmap unmap_vmas zap_pte_range page_remove_rmap",
        "__x64_sys_wait4 kernel_wait4 do_wait wait_consider_task release_task __exit_signal",
    ),
    "gpu": (
        "__x64_sys_ioctl nvidia:nvidia_unlocked_ioctl nvidia:rm_ioctl "
        "nvidia:_nv043162rm|nvidia:_nv012345rm|nvidia:os_acquire_spinlock",
        "__x64_sys_ioctl nvidia_uvm:uvm_unlocked_ioctl nvidia_uvm:uvm_va_space_mm_fault "
        "nvidia_uvm:uvm_va_block_make_resident",
        "__x64_sys_ioctl nvidia:nvidia_unlocked_ioctl nvidia:rm_ioctl nvidia:os_delay_us delay_halt",
    ),
}

FAULTS: tuple[str, ...] = (
    f"{FAULT} do_anonymous_page alloc_anon_folio __alloc_pages get_page_from_freelist clear_page_erms",
    f"{FAULT} do_anonymous_page __mem_cgroup_charge try_charge_memcg|charge_memcg|get_mem_cgroup_from_mm",
    f"{FAULT} do_huge_pmd_anonymous_page clear_huge_page clear_page_erms",
    f"{FAULT} do_fault do_read_fault filemap_map_pages next_uptodate_folio|set_pte_range",
    f"{FAULT} do_fault do_cow_fault filemap_fault|copy_mc_user_highpage",
    f"{FAULT} do_wp_page wp_page_copy copy_mc_user_highpage copy_page",
    f"{FAULT} do_numa_page migrate_misplaced_page|numa_migrate_prep|task_numa_fault",
)

INTERRUPTS: tuple[str, ...] = (
    f"asm_common_interrupt common_interrupt {_SOFTIRQ_PATH} {_RX} netif_receive_skb_list_internal {_TCP_IN} "
    "tcp_ack|tcp_data_queue|sk_filter_trim_cap",
    f"asm_common_interrupt common_interrupt {_SOFTIRQ_PATH} {_RX} skb_gro_receive|inet_gro_receive|tcp4_gro_receive",
    f"asm_common_interrupt common_interrupt {_SOFTIRQ_PATH} net_rx_action __napi_poll ena:ena_io_poll "
    "ena:ena_clean_tx_irq napi_consume_skb|skb_release_data",
    f"asm_common_interrupt common_interrupt {_SOFTIRQ_PATH} {_RX} netif_receive_skb_list_internal nf_hook_slow "
    "nf_conntrack:nf_conntrack_in|iptables:ipt_do_table",
    f"asm_sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt {_SOFTIRQ_PATH} run_timer_softirq call_timer_fn "
    "tcp_write_timer|process_timeout|delayed_work_timer_fn",
    f"asm_sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt {_SOFTIRQ_PATH} rcu_core rcu_do_batch "
    "kmem_cache_free|__put_task_struct|file_free_rcu",
    f"asm_sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt {_SOFTIRQ_PATH} run_rebalance_domains "
    "rebalance_domains load_balance find_busiest_group update_sd_lb_stats",
    "asm_sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt hrtimer_interrupt tick_sched_timer "
    "update_process_times scheduler_tick task_tick_fair update_load_avg",
    "asm_sysvec_call_function_single flush_smp_call_function_queue sched_ttwu_pending|flush_tlb_func",
)

KERNEL_THREADS: dict[str, tuple[str, ...]] = {
    "ksoftirqd": (
        f"ret_from_fork kthread smpboot_thread_fn run_ksoftirqd __do_softirq {_RX} "
        f"netif_receive_skb_list_internal {_TCP_IN}",
        "ret_from_fork kthread smpboot_thread_fn run_ksoftirqd __do_softirq net_tx_action qdisc_run __qdisc_run "
        "fq_codel_dequeue",
        "ret_from_fork kthread smpboot_thread_fn run_ksoftirqd __do_softirq rcu_core rcu_do_batch "
        "kmem_cache_free|kfree",
    ),
    "kworker": (
        "ret_from_fork kthread worker_thread process_one_work wb_workfn wb_writeback __writeback_inodes_wb "
        "writeback_sb_inodes ext4:ext4_writepages",
        "ret_from_fork kthread worker_thread process_one_work "
        "vmstat_update|mod_delayed_work_on|cgroup_bpf_release refresh_cpu_vm_stats",
        "ret_from_fork kthread worker_thread process_one_work flush_memcg_stats_dwork cgroup_rstat_flush "
        "cgroup_rstat_flush_locked mem_cgroup_css_rstat_flush",
        "ret_from_fork kthread worker_thread process_one_work css_free_rwork_fn mem_cgroup_css_free __mem_cgroup_free",
        "ret_from_fork kthread worker_thread process_one_work "
        "nvme_core:nvme_queue_rq|blk_mq_run_work_fn|ena:ena_timer_service",
    ),
    "kswapd": (
        "ret_from_fork kthread kswapd balance_pgdat shrink_node shrink_node_memcgs mem_cgroup_iter "
        "css_next_descendant_pre",
        "ret_from_fork kthread kswapd balance_pgdat shrink_node shrink_lruvec shrink_inactive_list "
        "shrink_folio_list|folio_referenced|isolate_lru_folios",
        "ret_from_fork kthread kswapd balance_pgdat shrink_node shrink_slab do_shrink_slab "
        "super_cache_scan|count_shadow_nodes",
    ),
    "housekeeping": (
        "ret_from_fork kthread rcu_gp_kthread rcu_gp_fqs_loop force_qs_rnp|rcu_gp_init",
        "ret_from_fork kthread jbd2:kjournald2 jbd2:jbd2_journal_commit_transaction "
        "jbd2:jbd2_journal_write_metadata_buffer|submit_bh_wbc",
        "ret_from_fork kthread khugepaged khugepaged_scan_mm_slot collapse_huge_page|hpage_collapse_scan_pmd",
        "ret_from_fork kthread smpboot_thread_fn cpu_stopper_thread migration_cpu_stop|multi_cpu_stop",
        "ret_from_fork kthread kcompactd compact_zone isolate_migratepages_block|migrate_pages",
    ),
}

# What the planted incident runs: before 5.8, one read of memory.numa_stat walks every memory cgroup, dead ones too,
# and never lets anything else run.
ZOMBIE_WALK = (
    f"{SYSCALL} __x64_sys_read ksys_read vfs_read __vfs_read kernfs_fop_read seq_read cgroup_seqfile_show "
    "memcg_numa_stat_show mem_cgroup_nr_lru_pages mem_cgroup_node_nr_lru_pages",
    f"{SYSCALL} __x64_sys_read ksys_read vfs_read __vfs_read kernfs_fop_read seq_read cgroup_seqfile_show "
    "memcg_numa_stat_show mem_cgroup_nr_lru_pages",
    f"{SYSCALL} __x64_sys_read ksys_read vfs_read __vfs_read kernfs_fop_read seq_read cgroup_seqfile_show "
    "memcg_numa_stat_show mem_cgroup_iter css_next_descendant_pre",
)


Frame = tuple[str, str, str]
U64Array = npt.NDArray[np.uint64]
IntArray = npt.NDArray[np.int64]

# What a sample of the stack counts as in the cpu table.
USER, SYSTEM, SOFTIRQ = 0, 1, 2

# Popularity inside a program falls off like this; the tail keeps thousands of stacks alive.
ZIPF_EXPONENT = 1.15
# Drawing a stack by popularity is one look into a table of this many equal parts.
QUANTILES = 16_384
TREE_BRANCHES = 4
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All frames and stacks. Stack i is frames[flat[offsets[i]:offsets[i + 1]]], root first.

    `draw[p, q]` is the stack at quantile q of program p. `kind` is USER, SYSTEM or SOFTIRQ for each stack.
    """

    frames: list[Frame]
    frame_ids: U64Array
    flat: IntArray
    offsets: IntArray
    stack_ids: U64Array
    kind: npt.NDArray[np.uint8]
    draw: npt.NDArray[np.uint32]
    zombie_walk: IntArray


def hash_of(*parts: bytes) -> int:
    return int.from_bytes(blake2b(b"\0".join(parts), digest_size=8).digest(), "little")


class _Builder:
    def __init__(self) -> None:
        self.frames: dict[Frame, int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self.kinds: list[int] = []

    def add(self, frames: Iterable[Frame], kind: int) -> int:
        stack = tuple(self.frames.setdefault(frame, len(self.frames)) for frame in frames)
        place = self.stacks.setdefault(stack, len(self.stacks))
        if place == len(self.kinds):
            self.kinds.append(kind)
        return place


def build_catalogue(programs: tuple[Program, ...], seed: int) -> Catalogue:
    rng = np.random.default_rng([seed, 1])
    builder = _Builder()
    draw = np.empty((len(programs), QUANTILES), np.uint32)
    kubelet_at = next(i for i, program in enumerate(programs) if program.comm == "kubelet")
    for row, program in enumerate(programs):
        tree: list[list[Frame]] = []
        stacks = sorted({builder.add(*_stack_of(program, tree, rng)) for _ in range(program.stacks)})
        popularity = np.arange(1, len(stacks) + 1, dtype=np.float64) ** -ZIPF_EXPONENT
        edges = np.cumsum(popularity / popularity.sum())
        order = rng.permutation(np.array(stacks, np.uint32))
        middle = (np.arange(QUANTILES) + 0.5) / QUANTILES
        draw[row] = order[np.minimum(np.searchsorted(edges, middle), len(stacks) - 1)]
    root = _go_stack(programs[kubelet_at], np.random.default_rng([seed, 2]))[:6]
    reader: list[Frame] = [
        ("user", programs[kubelet_at].path, "github.com/google/cadvisor/manager.(*containerData).housekeepingTick"),
        (
            "user",
            programs[kubelet_at].path,
            "github.com/opencontainers/runc/libcontainer/cgroups/fs.getPageUsageByNUMA",
        ),
        ("user", programs[kubelet_at].path, "syscall.Syscall"),
    ]
    walk = [builder.add(root + reader + _kernel(path, rng), SYSTEM) for path in ZOMBIE_WALK]
    return _finish(builder, draw, walk)


def _finish(builder: _Builder, draw: npt.NDArray[np.uint32], walk: list[int]) -> Catalogue:
    frames = list(builder.frames)
    frame_ids = np.array([hash_of(*(part.encode() for part in frame)) for frame in frames], np.uint64)
    lengths = np.array([len(stack) for stack in builder.stacks], np.int64)
    flat = np.concatenate([np.array(stack, np.int64) for stack in builder.stacks])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    stack_ids = np.array([hash_of(frame_ids[flat[a:b]].tobytes()) for a, b in pairwise(offsets)], np.uint64)
    return Catalogue(
        frames, frame_ids, flat, offsets, stack_ids, np.array(builder.kinds, np.uint8), draw, np.array(walk, np.int64)
    )


def _stack_of(program: Program, tree: list[list[Frame]], rng: np.random.Generator) -> tuple[list[Frame], int]:
    """One stack of the program and what it counts as."""
    if program.language == languages.KERNEL:
        return _kernel_thread_stack(program, rng)
    user = _user_stack(program, tree, rng)
    roll = rng.random()
    if roll < 0.02:
        return user + _kernel(_pick(INTERRUPTS, rng), rng), SOFTIRQ
    if roll < 0.02 + 0.25 * program.in_kernel:
        return user + _kernel(_pick(FAULTS, rng), rng), SYSTEM
    if roll < program.in_kernel:
        group = SYSCALLS[_pick(program.enters, rng)]
        return [*user, ("user", LIBC, "syscall"), *_kernel(f"{SYSCALL} {_pick(group, rng)}", rng)], SYSTEM
    return user, USER


def _user_stack(program: Program, tree: list[list[Frame]], rng: np.random.Generator) -> list[Frame]:
    """Calls form a tree: most stacks leave an earlier one at some depth and go their own way from there."""
    fresh = _USER_STACKS[program.language](program, rng)
    if tree and rng.random() < 0.95:
        trunk = tree[int(rng.integers(len(tree)))]
        if rng.random() < 0.5:
            return trunk
        leaves_at = int(rng.integers(len(trunk) // 2, len(trunk)))
        fresh = trunk[:leaves_at] + fresh[-int(rng.integers(1, 4)) :]
    tree.append(fresh)
    return fresh


def _kernel_thread_stack(program: Program, rng: np.random.Generator) -> tuple[list[Frame], int]:
    if not program.enters:
        # Interrupts that arrive on an idle core: the idle loop is below them, and their work is still work.
        idle = "secondary_startup_64_no_verify start_secondary cpu_startup_entry do_idle cpuidle_idle_call default_idle"
        return _kernel(f"{idle} {_pick(INTERRUPTS, rng)}", rng), SOFTIRQ
    kind = SOFTIRQ if program.comm == "ksoftirqd" else SYSTEM
    frames = _kernel(_pick(KERNEL_THREADS[_pick(program.enters, rng)], rng), rng)
    if rng.random() < 0.15:
        frames += _kernel(_pick(INTERRUPTS, rng), rng)
    return frames, kind


def _kernel(path: str, rng: np.random.Generator) -> list[Frame]:
    frames: list[Frame] = []
    for place in path.split():
        module, _, name = _pick(place.split("|"), rng).rpartition(":")
        frames.append(("kernel", f"[{module or 'kernel'}]", name))
    return frames


def _pick(choices: tuple[str, ...] | list[str], rng: np.random.Generator) -> str:
    # Earlier choices are likelier: one multiplication instead of a weighted draw.
    return choices[int(len(choices) * rng.random() * rng.random())]


def _depth(rng: np.random.Generator, typical: int) -> int:
    return max(2, int(rng.gamma(4.0, typical / 4.0)))


def _go_stack(program: Program, rng: np.random.Generator) -> list[Frame]:
    frames: list[Frame] = [("user", program.path, "runtime.goexit.abi0")]
    for _ in range(_depth(rng, 11)):
        name = f"{_pick(GO_PACKAGES, rng)}.{_pick(GO_TYPES, rng)}.{_pick(GO_METHODS, rng)}"
        frames.append(("user", program.path, name))
    frames.append(("user", program.path, _pick(GO_LEAVES, rng)))
    return frames


def _python_stack(program: Program, rng: np.random.Generator) -> list[Frame]:
    frames: list[Frame] = [("user", LIBC, "__libc_start_main"), ("user", program.path, "Py_RunMain")]
    for _ in range(_depth(rng, 6)):
        script = _pick(PYTHON_MODULES, rng)
        frames.append(("jit", "perf-map", f"py::{_pick(PYTHON_FUNCTIONS, rng)}:{script}"))
        frames += [("user", program.path, _pick(PYTHON_INTERPRETER, rng)) for _ in range(TREE_BRANCHES // 2)]
    return frames + _native_frames(rng, 5)


def _native_stack(program: Program, rng: np.random.Generator) -> list[Frame]:
    return [("user", LIBC, "start_thread"), ("user", program.path, "main"), *_native_frames(rng, 9, program.path)]


def _java_stack(program: Program, rng: np.random.Generator) -> list[Frame]:
    frames: list[Frame] = [("user", LIBC, "start_thread"), ("user", "/usr/lib/jvm/lib/libjvm.so", "JavaThread::run")]
    for _ in range(_depth(rng, 14)):
        package, method = _pick(JAVA_PACKAGES, rng), _pick(JAVA_METHODS, rng)
        frames.append(("jit", "perf-map", f"L{package.replace('.', '/')};::{method}"))
    return frames


def _native_frames(rng: np.random.Generator, typical: int, path: str | None = None) -> list[Frame]:
    frames: list[Frame] = []
    for _ in range(_depth(rng, typical)):
        library = path or _pick(NATIVE_LIBRARIES, rng)
        if library.endswith("550.54"):
            # A stripped library: its functions have no names, and the recording doesn't invent any.
            frames.append(("user", library, f"libcuda.so.550.54+{int(rng.integers(400)) * 0x930 + 0x21A0:#x}"))
            continue
        namespace, kind = _pick(NATIVE_NAMESPACES, rng), _pick(NATIVE_CLASSES, rng)
        frames.append(("user", library, f"{namespace}::{kind}::{_pick(NATIVE_METHODS, rng)}"))
    if rng.random() < 0.5:
        frames.append(("user", LIBC, _pick(NATIVE_LEAVES, rng)))
    return frames


_USER_STACKS = {
    languages.GO: _go_stack,
    languages.PYTHON: _python_stack,
    languages.NATIVE: _native_stack,
    languages.JAVA: _java_stack,
}
