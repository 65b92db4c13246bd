"""The stacks of a synthetic node: thousands, built from function names of its programs and kernel call paths."""

from hashlib import blake2b
from itertools import pairwise

import numpy as np

from exhume.lab.synth.workload import GO, JAVA, KERNEL, NATIVE, PYTHON, Program, quantile_table


def _words(text: str) -> list[str]:
    return text.split()


def _paths(text: str) -> tuple[str, ...]:
    """Call paths, a line each, from the outermost function to the innermost; `a|b` is one of several."""
    return tuple(" ".join(line.split()) for line in text.strip().splitlines())


GO_PACKAGES = _words("""
    k8s.io/kubernetes/pkg/kubelet k8s.io/kubernetes/pkg/kubelet/cm k8s.io/kubernetes/pkg/kubelet/pleg
    k8s.io/client-go/tools/cache k8s.io/apimachinery/pkg/util/wait github.com/google/cadvisor/manager
    github.com/opencontainers/runc/libcontainer/cgroups/fs github.com/containerd/containerd/services/tasks
    github.com/containerd/ttrpc google.golang.org/grpc google.golang.org/grpc/internal/transport
    github.com/prometheus/client_golang/prometheus github.com/prometheus/procfs encoding/json net/http compress/flate
    reflect runtime internal/poll bufio regexp strconv sync syscall os google.golang.org/protobuf/proto crypto/tls
    golang.org/x/net/http2
""")
GO_TYPES = _words("""
    (*Server) (*Manager) (*Client) (*reader) (*Decoder) (*Registry) (*FD) (*loop) (*conn) (*Collector) (*pool) (*Stream)
""")
GO_METHODS = _words("""
    Read Write Sync Run Update Collect Gather decode serve handle next flush GetStats housekeeping watch Lock
""")
GO_LEAVES = _words("""
    runtime.mallocgc runtime.scanobject runtime.memmove runtime.mapaccess2_faststr runtime.findrunnable runtime.gcDrain
    runtime.heapBitsSetType runtime.futex runtime.usleep internal/runtime/syscall.Syscall6 strconv.ParseUint
    runtime.growslice
""")
PYTHON_MODULES = _words("""
    torch/nn/modules/module.py torch/optim/adamw.py torch/utils/data/dataloader.py torch/distributed/c10d.py
    ray/_private/worker.py ray/rllib/evaluation/sampler.py ray/data/_internal/execution.py numpy/core/fromnumeric.py
    transformers/modeling_llama.py asyncio/events.py threading.py pyarrow/parquet/core.py cloudpickle/cloudpickle.py
    json/decoder.py concurrent/futures/thread.py
""")
PYTHON_FUNCTIONS = _words("""
    forward backward step _call_impl __next__ collate run get put _sample loads dumps apply poll _fetch
""")
PYTHON_INTERPRETER = _words("""
    _PyEval_EvalFrameDefault _PyFunction_Vectorcall PyObject_Call _PyObject_MakeTpCall method_vectorcall PyEval_EvalCode
""")
NATIVE_NAMESPACES = _words("""
    at::native c10 torch::autograd ray::core ray::gcs plasma grpc_core boost::asio::detail absl::lts Envoy::Http
    Envoy::Network google::protobuf std::__detail G1 nvidia jemalloc event dict rb_vm
""")
NATIVE_CLASSES = _words("""
    Engine TensorIterator Scheduler Task ConnectionImpl Dispatcher ObjectStore Arena Allocator Codec Buffer Queue
""")
NATIVE_METHODS = _words("""
    run execute dispatch process onData allocate release poll evaluate serialize insert lookup vectorized_loop
""")
NATIVE_LIBRARIES = _words("""
    /opt/conda/lib/libtorch_cpu.so /opt/conda/lib/libc10.so /opt/conda/lib/libcudart.so.12
    /usr/lib/x86_64-linux-gnu/libcuda.so.550.54 /opt/conda/lib/libmkl_core.so.2 /usr/lib/x86_64-linux-gnu/libstdc++.so.6
""")
NATIVE_LEAVES = _words("""
    __memmove_avx_unaligned_erms _int_malloc _int_free malloc cfree __memset_avx2_erms pthread_mutex_lock
    __memcmp_avx2_movbe
""")
JAVA_PACKAGES = _words("""
    java.util.concurrent org.apache.kafka.common.network io.netty.channel.nio org.springframework.web
    com.fasterxml.jackson.databind org.apache.spark.sql.execution java.util.HashMap sun.nio.ch org.apache.lucene.search
""")
JAVA_METHODS = _words("run poll read write handle doFilter serialize getNode select invoke next accept compute encode")

# Stretches that many paths have in common.
SYSCALL = "entry_SYSCALL_64_after_hwframe do_syscall_64"
_FAULT = "asm_exc_page_fault exc_page_fault do_user_addr_fault handle_mm_fault __handle_mm_fault"
_READ, _WRITE = "__x64_sys_read ksys_read vfs_read", "__x64_sys_write ksys_write vfs_write"
_EXT4_WRITE = "ext4:ext4_file_write_iter ext4:ext4_buffered_write_iter generic_perform_write"
_OPEN = "__x64_sys_openat do_sys_openat2 do_filp_open path_openat"
_SENDTO = "__x64_sys_sendto __sys_sendto sock_sendmsg tcp_sendmsg tcp_sendmsg_locked"
_TCP = "tcp_push __tcp_push_pending_frames tcp_write_xmit __tcp_transmit_skb ip_queue_xmit __ip_queue_xmit ip_output"
_TO_WIRE = "ip_finish_output2 __dev_queue_xmit dev_hard_start_xmit ena:ena_start_xmit"
_SLEEP = "schedule __schedule"
_MUNMAP = "__x64_sys_munmap __vm_munmap do_vmi_munmap"
_NVIDIA = "__x64_sys_ioctl nvidia:nvidia_unlocked_ioctl nvidia:rm_ioctl"
_ENA = "net_rx_action __napi_poll ena:ena_io_poll"
_RX = f"{_ENA} ena:ena_clean_rx_irq napi_gro_receive dev_gro_receive"
_TCP_IN = "ip_rcv ip_local_deliver ip_protocol_deliver_rcu tcp_v4_rcv tcp_v4_do_rcv tcp_rcv_established"
_TIMER = "asm_sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt"
_SOFTIRQ = "irq_exit_rcu __irq_exit_rcu __do_softirq"
_IRQ = f"asm_common_interrupt common_interrupt {_SOFTIRQ}"
_KTHREAD = "ret_from_fork kthread"
_KSOFTIRQD = f"{_KTHREAD} smpboot_thread_fn run_ksoftirqd __do_softirq"
_WORK = f"{_KTHREAD} worker_thread process_one_work"
_KSWAPD = f"{_KTHREAD} kswapd balance_pgdat shrink_node"

SYSCALLS: dict[str, tuple[str, ...]] = {
    "read": _paths(f"""
        {_READ} ext4:ext4_file_read_iter generic_file_read_iter filemap_read copy_page_to_iter
        {_READ} ext4:ext4_file_read_iter filemap_read filemap_get_pages|folio_mark_accessed
        {_READ} seq_read_iter show_stat|meminfo_proc_show|vmstat_show|mounts_show
        {_READ} proc_pid_read proc_single_show do_task_stat task_cputime|thread_group_cputime
        {_READ} kernfs_fop_read_iter seq_read_iter cgroup_seqfile_show memory_stat_show
        {_READ} pipe_read copy_page_to_iter|__wake_up_sync_key
        __x64_sys_pread64 vfs_read ext4:ext4_file_read_iter filemap_read page_cache_ra_unbounded|copy_page_to_iter
    """),
    "write": _paths(f"""
        {_WRITE} {_EXT4_WRITE} ext4:ext4_da_write_begin|ext4:ext4_da_write_end|copy_page_from_iter_atomic
        {_WRITE} pipe_write alloc_pages|copy_page_from_iter|__wake_up_sync_key
        __x64_sys_fsync do_fsync vfs_fsync_range ext4:ext4_sync_file \
            jbd2:jbd2_complete_transaction jbd2:jbd2_log_wait_commit
    """),
    "socket": _paths(f"""
        {_SENDTO} {_TCP} {_TO_WIRE}
        {_SENDTO} skb_copy_datagram_from_iter|sk_stream_alloc_skb
        __x64_sys_sendmsg __sys_sendmsg ___sys_sendmsg sock_sendmsg tcp_sendmsg {_TCP} nf_hook_slow \
            nf_conntrack:nf_conntrack_in
        __x64_sys_recvfrom __sys_recvfrom sock_recvmsg inet_recvmsg tcp_recvmsg tcp_recvmsg_locked \
            skb_copy_datagram_iter _copy_to_iter
        __x64_sys_recvmsg __sys_recvmsg sock_recvmsg tcp_recvmsg tcp_cleanup_rbuf|tcp_rcv_space_adjust|release_sock
        __x64_sys_sendmsg __sys_sendmsg sock_sendmsg unix_stream_sendmsg \
            sock_alloc_send_pskb|sock_def_readable|skb_copy_datagram_from_iter
    """),
    "wait": _paths(f"""
        __x64_sys_futex do_futex futex_wait __futex_wait futex_wait_queue {_SLEEP} finish_task_switch.isra.0
        __x64_sys_futex do_futex futex_wake wake_up_q try_to_wake_up _raw_spin_unlock_irqrestore|ttwu_do_activate
        __x64_sys_epoll_wait do_epoll_wait ep_poll schedule_hrtimeout_range {_SLEEP} \
            dequeue_task_fair|pick_next_task_fair
        __x64_sys_epoll_wait do_epoll_wait ep_poll ep_send_events ep_item_poll sock_poll tcp_poll
        __x64_sys_poll do_sys_poll do_poll tcp_poll|pipe_poll|unix_poll|eventfd_poll
        __x64_sys_nanosleep hrtimer_nanosleep do_nanosleep {_SLEEP} psi_task_switch|finish_task_switch.isra.0
        __x64_sys_sched_yield do_sched_yield {_SLEEP} update_curr|pick_next_task_fair
    """),
    "files": _paths(f"""
        {_OPEN} link_path_walk walk_component lookup_fast __d_lookup_rcu
        {_OPEN} do_dentry_open ext4:ext4_file_open|kernfs_fop_open|proc_reg_open
        __x64_sys_newfstatat vfs_fstatat vfs_statx filename_lookup path_lookupat link_path_walk \
            inode_permission|__d_lookup_rcu
        __x64_sys_getdents64 iterate_dir ext4:ext4_readdir|kernfs_fop_readdir|proc_pid_readdir filldir64
        __x64_sys_close __fput dput|locks_remove_posix|security_file_free
        __x64_sys_readlink do_readlinkat user_path_at_empty filename_lookup path_lookupat proc_pid_get_link
    """),
    "memory": _paths(f"""
        {_MUNMAP} unmap_region unmap_vmas zap_pte_range page_remove_rmap|free_swap_cache
        {_MUNMAP} tlb_finish_mmu tlb_batch_pages_flush release_pages free_unref_page_list
        __x64_sys_mmap ksys_mmap_pgoff vm_mmap_pgoff do_mmap mmap_region vma_merge|perf_event_mmap|security_mmap_file
        __x64_sys_madvise do_madvise madvise_vma_behavior zap_page_range_single unmap_page_range tlb_flush_mmu \
            flush_tlb_mm_range
        __x64_sys_mprotect do_mprotect_pkey mprotect_fixup change_protection change_pte_range
    """),
    "tasks": _paths("""
        __x64_sys_clone kernel_clone copy_process dup_mm dup_mmap copy_page_range copy_pte_range
        __x64_sys_clone3 kernel_clone copy_process dup_task_struct|cgroup_can_fork|alloc_pid|sched_fork
        __x64_sys_execve do_execveat_common bprm_execve load_elf_binary elf_map|begin_new_exec|setup_arg_pages
        __x64_sys_exit_group do_group_exit do_exit mmput exit_mmap unmap_vmas zap_pte_range page_remove_rmap
        __x64_sys_wait4 kernel_wait4 do_wait wait_consider_task release_task __exit_signal
    """),
    "gpu": _paths(f"""
        {_NVIDIA} nvidia:_nv043162rm|nvidia:_nv012345rm|nvidia:os_acquire_spinlock
        __x64_sys_ioctl nvidia_uvm:uvm_unlocked_ioctl nvidia_uvm:uvm_va_space_mm_fault \
            nvidia_uvm:uvm_va_block_make_resident
        {_NVIDIA} nvidia:os_delay_us delay_halt
    """),
}

FAULTS = _paths(f"""
    {_FAULT} do_anonymous_page alloc_anon_folio __alloc_pages get_page_from_freelist clear_page_erms
    {_FAULT} do_anonymous_page __mem_cgroup_charge try_charge_memcg|charge_memcg|get_mem_cgroup_from_mm
    {_FAULT} do_huge_pmd_anonymous_page clear_huge_page clear_page_erms
    {_FAULT} do_fault do_read_fault filemap_map_pages next_uptodate_folio|set_pte_range
    {_FAULT} do_fault do_cow_fault filemap_fault|copy_mc_user_highpage
    {_FAULT} do_wp_page wp_page_copy copy_mc_user_highpage copy_page
    {_FAULT} do_numa_page migrate_misplaced_page|numa_migrate_prep|task_numa_fault
""")

INTERRUPTS = _paths(f"""
    {_IRQ} {_RX} netif_receive_skb_list_internal {_TCP_IN} tcp_ack|tcp_data_queue|sk_filter_trim_cap
    {_IRQ} {_RX} skb_gro_receive|inet_gro_receive|tcp4_gro_receive
    {_IRQ} {_ENA} ena:ena_clean_tx_irq napi_consume_skb|skb_release_data
    {_IRQ} {_RX} netif_receive_skb_list_internal nf_hook_slow nf_conntrack:nf_conntrack_in|iptables:ipt_do_table
    {_TIMER} {_SOFTIRQ} run_timer_softirq call_timer_fn tcp_write_timer|process_timeout|delayed_work_timer_fn
    {_TIMER} {_SOFTIRQ} rcu_core rcu_do_batch kmem_cache_free|__put_task_struct|file_free_rcu
    {_TIMER} {_SOFTIRQ} run_rebalance_domains rebalance_domains load_balance find_busiest_group update_sd_lb_stats
    {_TIMER} hrtimer_interrupt tick_sched_timer update_process_times scheduler_tick task_tick_fair update_load_avg
    asm_sysvec_call_function_single flush_smp_call_function_queue sched_ttwu_pending|flush_tlb_func
""")

KERNEL_THREADS: dict[str, tuple[str, ...]] = {
    "ksoftirqd": _paths(f"""
        {_KSOFTIRQD} {_RX} netif_receive_skb_list_internal {_TCP_IN}
        {_KSOFTIRQD} net_tx_action qdisc_run __qdisc_run fq_codel_dequeue
        {_KSOFTIRQD} rcu_core rcu_do_batch kmem_cache_free|kfree
    """),
    "kworker": _paths(f"""
        {_WORK} wb_workfn wb_writeback __writeback_inodes_wb writeback_sb_inodes ext4:ext4_writepages
        {_WORK} vmstat_update|mod_delayed_work_on|cgroup_bpf_release refresh_cpu_vm_stats
        {_WORK} flush_memcg_stats_dwork cgroup_rstat_flush cgroup_rstat_flush_locked mem_cgroup_css_rstat_flush
        {_WORK} css_free_rwork_fn mem_cgroup_css_free __mem_cgroup_free
        {_WORK} nvme_core:nvme_queue_rq|blk_mq_run_work_fn|ena:ena_timer_service
    """),
    "kswapd": _paths(f"""
        {_KSWAPD} shrink_node_memcgs mem_cgroup_iter css_next_descendant_pre
        {_KSWAPD} shrink_lruvec shrink_inactive_list shrink_folio_list|folio_referenced|isolate_lru_folios
        {_KSWAPD} shrink_slab do_shrink_slab super_cache_scan|count_shadow_nodes
    """),
    "housekeeping": _paths(f"""
        {_KTHREAD} rcu_gp_kthread rcu_gp_fqs_loop force_qs_rnp|rcu_gp_init
        {_KTHREAD} jbd2:kjournald2 jbd2:jbd2_journal_commit_transaction \
            jbd2:jbd2_journal_write_metadata_buffer|submit_bh_wbc
        {_KTHREAD} khugepaged khugepaged_scan_mm_slot collapse_huge_page|hpage_collapse_scan_pmd
        {_KTHREAD} smpboot_thread_fn cpu_stopper_thread migration_cpu_stop|multi_cpu_stop
        {_KTHREAD} kcompactd compact_zone isolate_migratepages_block|migrate_pages
    """),
}

# What the planted incident runs: before 5.8, one read of memory.numa_stat walks every memory cgroup, dead ones too,
# and never lets anything else run.
_NUMA_STAT = f"{SYSCALL} {_READ} __vfs_read kernfs_fop_read seq_read cgroup_seqfile_show memcg_numa_stat_show"
READER = _words("""
    github.com/google/cadvisor/manager.(*containerData).housekeepingTick
    github.com/opencontainers/runc/libcontainer/cgroups/fs.getPageUsageByNUMA syscall.Syscall
""")
ZOMBIE_WALK = _paths(f"""
    {_NUMA_STAT} mem_cgroup_nr_lru_pages mem_cgroup_node_nr_lru_pages
    {_NUMA_STAT} mem_cgroup_nr_lru_pages
    {_NUMA_STAT} mem_cgroup_iter css_next_descendant_pre
""")


Frame = tuple[str, str, str]

# What a sample of the stack counts as in the cpu table.
USER, SYSTEM, SOFTIRQ = 0, 1, 2

# Popularity inside a program falls off like this; the tail keeps thousands of stacks alive.
ZIPF_EXPONENT = 1.15
# Drawing a stack by popularity is one look into a table of this many equal parts.
QUANTILES = 16_384
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"


def hash_of(*parts: bytes) -> int:
    return int.from_bytes(blake2b(b"\0".join(parts), digest_size=8).digest(), "little")


class Catalogue:
    """All frames and stacks. Stack i is frames[flat[offsets[i]:offsets[i + 1]]], root first.

    `draw[p, q]` is the stack at quantile q of program p. `kind` is USER, SYSTEM or SOFTIRQ for each stack.
    """

    def __init__(self, programs: tuple[Program, ...], seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        frame_index: dict[Frame, int] = {}
        stack_index: dict[tuple[int, ...], int] = {}
        kinds: list[int] = []

        def add(frames: list[Frame], kind: int) -> int:
            stack = tuple(frame_index.setdefault(frame, len(frame_index)) for frame in frames)
            place = stack_index.setdefault(stack, len(stack_index))
            if place == len(kinds):
                kinds.append(kind)
            return place

        self.draw = np.empty((len(programs), QUANTILES), np.uint32)
        for row, program in enumerate(programs):
            tree: list[list[Frame]] = []
            stacks = sorted({add(*_stack_of(program, tree, rng)) for _ in range(program.stacks)})
            popularity = np.arange(1, len(stacks) + 1, dtype=np.float64) ** -ZIPF_EXPONENT
            self.draw[row] = rng.permutation(np.array(stacks, np.uint32))[quantile_table(popularity, QUANTILES)]
        kubelet = next(program for program in programs if program.comm == "kubelet")
        reader = _go_stack(kubelet, np.random.default_rng([seed, 2]))[:6]
        reader += [("user", kubelet.path, name) for name in READER]
        self.zombie_walk = np.array([add(reader + _kernel(path, rng), SYSTEM) for path in ZOMBIE_WALK], np.int64)
        self.kind = np.array(kinds, np.uint8)
        self.frames = list(frame_index)
        self.frame_ids = np.array([hash_of(*(part.encode() for part in frame)) for frame in self.frames], np.uint64)
        self.flat = np.concatenate([np.array(stack, np.int64) for stack in stack_index])
        self.offsets = np.cumsum([0, *map(len, stack_index)], dtype=np.int64)
        spans = [self.frame_ids[self.flat[start:end]] for start, end in pairwise(self.offsets)]
        self.stack_ids = np.array([hash_of(span.tobytes()) for span in spans], np.uint64)


def _stack_of(program: Program, tree: list[list[Frame]], rng: np.random.Generator) -> tuple[list[Frame], int]:
    """One stack of the program and what it counts as."""
    if program.language == KERNEL:
        return _kernel_thread_stack(program, rng)
    user = _user_stack(program, tree, rng)
    roll = rng.random()
    if roll < 0.02:
        return user + _kernel(_pick(INTERRUPTS, rng), rng), SOFTIRQ
    if roll < 0.02 + 0.25 * program.in_kernel:
        return user + _kernel(_pick(FAULTS, rng), rng), SYSTEM
    if roll < program.in_kernel:
        group = SYSCALLS[_pick(program.enters.split(), rng)]
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
    frames = _kernel(_pick(KERNEL_THREADS[_pick(program.enters.split(), rng)], rng), rng)
    if rng.random() < 0.15:
        frames += _kernel(_pick(INTERRUPTS, rng), rng)
    return frames, SOFTIRQ if program.comm == "ksoftirqd" else SYSTEM


def _kernel(path: str, rng: np.random.Generator) -> list[Frame]:
    parts = [_pick(place.split("|"), rng).rpartition(":") for place in path.split()]
    return [("kernel", f"[{module or 'kernel'}]", name) for module, _, name in parts]


def _pick(choices: tuple[str, ...] | list[str], rng: np.random.Generator) -> str:
    # Earlier choices are likelier: one multiplication instead of a weighted draw.
    return choices[int(len(choices) * rng.random() * rng.random())]


def _depth(rng: np.random.Generator, typical: int) -> range:
    return range(max(2, int(rng.gamma(4.0, typical / 4.0))))


def _go_stack(program: Program, rng: np.random.Generator) -> list[Frame]:
    names = [f"{_pick(GO_PACKAGES, rng)}.{_pick(GO_TYPES, rng)}.{_pick(GO_METHODS, rng)}" for _ in _depth(rng, 11)]
    return [("user", program.path, name) for name in ("runtime.goexit.abi0", *names, _pick(GO_LEAVES, rng))]


def _python_stack(program: Program, rng: np.random.Generator) -> list[Frame]:
    frames: list[Frame] = [("user", LIBC, "__libc_start_main"), ("user", program.path, "Py_RunMain")]
    for _ in _depth(rng, 6):
        script = _pick(PYTHON_MODULES, rng)
        frames.append(("jit", "perf-map", f"py::{_pick(PYTHON_FUNCTIONS, rng)}:{script}"))
        frames += [("user", program.path, _pick(PYTHON_INTERPRETER, rng)) for _ in range(2)]
    return frames + _native_frames(rng, 5)


def _native_stack(program: Program, rng: np.random.Generator) -> list[Frame]:
    return [("user", LIBC, "start_thread"), ("user", program.path, "main"), *_native_frames(rng, 9, program.path)]


def _java_stack(program: Program, rng: np.random.Generator) -> list[Frame]:
    calls = [(_pick(JAVA_PACKAGES, rng).replace(".", "/"), _pick(JAVA_METHODS, rng)) for _ in _depth(rng, 14)]
    outermost: list[Frame] = [("user", LIBC, "start_thread"), ("user", "/usr/lib/jvm/lib/libjvm.so", "JavaThread::run")]
    return outermost + [("jit", "perf-map", f"L{package};::{method}") for package, method in calls]


def _native_frames(rng: np.random.Generator, typical: int, path: str | None = None) -> list[Frame]:
    frames: list[Frame] = []
    for _ in _depth(rng, typical):
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


_USER_STACKS = {GO: _go_stack, PYTHON: _python_stack, NATIVE: _native_stack, JAVA: _java_stack}
