"""Ways into the kernel, as a busy node's samples show them: data for the stacks of a synthetic recording.

Each path is written root first, frames separated by blanks; `a|b|c` stands for one of several frames at that place.
A frame with a module is written `module:name`.
"""

SYSCALL = "entry_SYSCALL_64_after_hwframe do_syscall_64"
FAULT = "asm_exc_page_fault exc_page_fault do_user_addr_fault handle_mm_fault __handle_mm_fault"
SOFTIRQ = "irq_exit_rcu __irq_exit_rcu __do_softirq"

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
    f"asm_common_interrupt common_interrupt {SOFTIRQ} {_RX} netif_receive_skb_list_internal {_TCP_IN} "
    "tcp_ack|tcp_data_queue|sk_filter_trim_cap",
    f"asm_common_interrupt common_interrupt {SOFTIRQ} {_RX} skb_gro_receive|inet_gro_receive|tcp4_gro_receive",
    f"asm_common_interrupt common_interrupt {SOFTIRQ} net_rx_action __napi_poll ena:ena_io_poll "
    "ena:ena_clean_tx_irq napi_consume_skb|skb_release_data",
    f"asm_common_interrupt common_interrupt {SOFTIRQ} {_RX} netif_receive_skb_list_internal nf_hook_slow "
    "nf_conntrack:nf_conntrack_in|iptables:ipt_do_table",
    f"asm_sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt {SOFTIRQ} run_timer_softirq call_timer_fn "
    "tcp_write_timer|process_timeout|delayed_work_timer_fn",
    f"asm_sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt {SOFTIRQ} rcu_core rcu_do_batch "
    "kmem_cache_free|__put_task_struct|file_free_rcu",
    f"asm_sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt {SOFTIRQ} run_rebalance_domains "
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
