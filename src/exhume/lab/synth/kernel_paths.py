"""Call paths in the kernel of the synthetic node, Linux 5.4 on x86-64.

A path goes from the outermost function to the innermost; `a|b` is one of several, `module:function` is in a module.
"""


def paths(text: str) -> tuple[str, ...]:
    """Parse call paths, one per line."""
    return tuple(" ".join(line.split()) for line in text.strip().splitlines())


# Path segments that many paths share.
SYSCALL = "entry_SYSCALL_64_after_hwframe do_syscall_64"
_FAULT = "page_fault do_page_fault __do_page_fault do_user_addr_fault handle_mm_fault __handle_mm_fault"
_READ, _WRITE = "__x64_sys_read ksys_read vfs_read __vfs_read", "__x64_sys_write ksys_write vfs_write __vfs_write"
_EXT4_READ = "new_sync_read ext4:ext4_file_read_iter generic_file_read_iter generic_file_buffered_read"
_EXT4_WRITE = "new_sync_write ext4:ext4_file_write_iter __generic_file_write_iter generic_perform_write"
_CGROUP_READ = f"{_READ} kernfs_fop_read seq_read kernfs_seq_show cgroup_seqfile_show"
_OPEN = "__x64_sys_openat do_sys_open do_filp_open path_openat"
_STAT = "__x64_sys_newfstatat __do_sys_newfstatat vfs_statx user_path_at_empty filename_lookup path_lookupat"
_PUT = "prepare_exit_to_usermode exit_to_usermode_loop task_work_run ____fput __fput"
_TCP_SEND = "inet_sendmsg tcp_sendmsg tcp_sendmsg_locked"
_TCP = "tcp_push __tcp_push_pending_frames tcp_write_xmit __tcp_transmit_skb __ip_queue_xmit ip_local_out"
_TO_WIRE = "ip_output ip_finish_output __ip_finish_output ip_finish_output2 dev_queue_xmit __dev_queue_xmit"
_ENA_XMIT = "sch_direct_xmit dev_hard_start_xmit ena:ena_start_xmit"
_CONNTRACK = "__ip_local_out nf_hook_slow nf_conntrack:ipv4_conntrack_local nf_conntrack:nf_conntrack_in"
_TCP_RECV = "sock_recvmsg inet_recvmsg tcp_recvmsg"
_SOCKET_READ = f"{_READ} new_sync_read sock_read_iter {_TCP_RECV}"
_SOCKET_WRITE = f"{_WRITE} new_sync_write sock_write_iter sock_sendmsg {_TCP_SEND}"
_COPY_OUT = (
    "skb_copy_datagram_iter __skb_datagram_iter simple_copy_to_iter _copy_to_iter copy_user_enhanced_fast_string"
)
_SLEEP = "schedule __schedule"
_FUTEX = "__x64_sys_futex do_futex"
_EPOLL = "do_epoll_wait ep_poll"
_MUNMAP = "__x64_sys_munmap __vm_munmap __do_munmap unmap_region"
_UNMAP = "unmap_vmas unmap_single_vma unmap_page_range"
_NVIDIA = "__x64_sys_ioctl ksys_ioctl do_vfs_ioctl nvidia:nvidia_frontend_unlocked_ioctl nvidia:nvidia_unlocked_ioctl"
_UVM = "__x64_sys_ioctl ksys_ioctl do_vfs_ioctl nvidia_uvm:uvm_unlocked_ioctl_entry nvidia_uvm:uvm_unlocked_ioctl"
_ENA = "net_rx_action ena:ena_io_poll"
_RX = f"{_ENA} ena:ena_clean_rx_irq napi_gro_receive dev_gro_receive"
_RX_LIST = f"{_ENA} napi_complete_done gro_normal_list.part.0 netif_receive_skb_list_internal"
_IP_IN = "__netif_receive_skb_list_core ip_list_rcv ip_sublist_rcv ip_local_deliver"
_TCP_IN = f"{_IP_IN} ip_protocol_deliver_rcu tcp_v4_rcv tcp_v4_do_rcv tcp_rcv_established"
_TIMER = "apic_timer_interrupt smp_apic_timer_interrupt"
_SOFTIRQ = "irq_exit __do_softirq"
_IRQ = f"ret_from_intr do_IRQ {_SOFTIRQ}"
_KTHREAD = "ret_from_fork kthread"
_KSOFTIRQD = f"{_KTHREAD} smpboot_thread_fn run_ksoftirqd __do_softirq"
_WORK = f"{_KTHREAD} worker_thread process_one_work"
_KSWAPD = f"{_KTHREAD} kswapd balance_pgdat shrink_node"

SYSCALLS: dict[str, tuple[str, ...]] = {
    "read-file": paths(f"""
        {_READ} {_EXT4_READ} copy_page_to_iter copyout copy_user_enhanced_fast_string
        {_READ} {_EXT4_READ} pagecache_get_page|mark_page_accessed|touch_atime
        __x64_sys_pread64 ksys_pread64 vfs_read __vfs_read {_EXT4_READ} page_cache_async_readahead|copy_page_to_iter
    """),
    "read-proc": paths(f"""
        {_READ} proc_reg_read seq_read show_stat|meminfo_proc_show|vmstat_show|softirq_show|show_interrupts
        {_READ} seq_read proc_single_show proc_tgid_stat|proc_pid_statm|proc_pid_status|proc_cgroup_show
        {_READ} seq_read proc_single_show proc_tgid_stat do_task_stat thread_group_cputime_adjusted thread_group_cputime
        {_READ} seq_read m_show show_mountinfo|show_vfsmnt seq_path|mangle_path
        {_READ} proc_reg_read seq_read dev_seq_show dev_get_stats
    """),
    "read-cgroup": paths(f"""
        {_CGROUP_READ} memcg_stat_show memcg_page_state|memcg_events
        {_CGROUP_READ} cpuacct_percpu_seq_show|cpuacct_stats_show|cpu_cfs_stat_show
        {_CGROUP_READ} blkg_rwstat_recursive_sum|blkcg_print_blkgs|pids_max_show
        {_READ} kernfs_fop_read seq_read kernfs_seq_show sysfs_kf_seq_show dev_attr_show netstat_show
    """),
    "read-socket": paths(f"""
        {_SOCKET_READ} {_COPY_OUT}
        {_SOCKET_READ} tcp_cleanup_rbuf|tcp_rcv_space_adjust|release_sock
        {_READ} new_sync_read sock_read_iter sock_recvmsg unix_stream_recvmsg unix_stream_read_generic|consume_skb
    """),
    "read-pipe": paths(f"""
        {_READ} new_sync_read pipe_read copy_page_to_iter|__wake_up_sync_key|pipe_wait
    """),
    "write-file": paths(f"""
        {_WRITE} {_EXT4_WRITE} ext4:ext4_da_write_begin grab_cache_page_write_begin pagecache_get_page
        {_WRITE} {_EXT4_WRITE} iov_iter_copy_from_user_atomic copy_user_enhanced_fast_string
        {_WRITE} {_EXT4_WRITE} ext4:ext4_da_write_end generic_write_end block_write_end|__mark_inode_dirty
        __x64_sys_fsync do_fsync vfs_fsync_range ext4:ext4_sync_file jbd2:jbd2_complete_transaction \
            jbd2:jbd2_log_wait_commit
    """),
    "write-socket": paths(f"""
        {_SOCKET_WRITE} {_TCP} {_TO_WIRE} {_ENA_XMIT}
        {_SOCKET_WRITE} {_TCP} {_CONNTRACK}
        {_SOCKET_WRITE} sk_stream_alloc_skb __alloc_skb|__kmalloc_reserve.isra.0
        {_SOCKET_WRITE} _copy_from_iter_full copy_user_enhanced_fast_string
        {_WRITE} new_sync_write sock_write_iter sock_sendmsg unix_stream_sendmsg \
            sock_alloc_send_pskb|sock_def_readable|skb_copy_datagram_from_iter
    """),
    "send": paths(f"""
        __x64_sys_sendto __sys_sendto sock_sendmsg {_TCP_SEND} {_TCP} {_TO_WIRE} {_ENA_XMIT}
        __x64_sys_sendmsg __sys_sendmsg ___sys_sendmsg sock_sendmsg {_TCP_SEND} {_TCP} {_TO_WIRE} {_ENA_XMIT}
        __x64_sys_sendmsg __sys_sendmsg ___sys_sendmsg sock_sendmsg {_TCP_SEND} {_TCP} {_CONNTRACK}
        __x64_sys_sendto __sys_sendto sock_sendmsg {_TCP_SEND} sk_stream_alloc_skb|_copy_from_iter_full
    """),
    "receive": paths(f"""
        __x64_sys_recvfrom __sys_recvfrom {_TCP_RECV} {_COPY_OUT}
        __x64_sys_recvmsg __sys_recvmsg ___sys_recvmsg {_TCP_RECV} {_COPY_OUT}
        __x64_sys_recvmsg __sys_recvmsg ___sys_recvmsg {_TCP_RECV} tcp_cleanup_rbuf|tcp_rcv_space_adjust|release_sock
    """),
    "netlink": paths("""
        __x64_sys_sendmsg __sys_sendmsg ___sys_sendmsg sock_sendmsg netlink_sendmsg netlink_unicast rtnetlink_rcv \
            netlink_rcv_skb rtnetlink_rcv_msg rtnl_dump_ifinfo|rtnl_getlink
        __x64_sys_setsockopt __sys_setsockopt sock_common_setsockopt raw_setsockopt ip_setsockopt nf_setsockopt \
            ip_tables:do_ipt_set_ctl ip_tables:do_replace ip_tables:translate_table
        __x64_sys_getsockopt __sys_getsockopt sock_common_getsockopt raw_getsockopt ip_getsockopt nf_getsockopt \
            ip_tables:do_ipt_get_ctl ip_tables:get_counters|ip_tables:copy_entries_to_user.isra.0
    """),
    "futex": paths(f"""
        {_FUTEX} futex_wait futex_wait_queue_me {_SLEEP} finish_task_switch|dequeue_task_fair|psi_task_change
        {_FUTEX} futex_wait futex_wait_setup get_futex_key|hash_futex
        {_FUTEX} futex_wake wake_up_q try_to_wake_up _raw_spin_unlock_irqrestore|ttwu_do_activate|select_task_rq_fair
    """),
    "epoll": paths(f"""
        __x64_sys_epoll_wait {_EPOLL} schedule_hrtimeout_range schedule_hrtimeout_range_clock {_SLEEP} \
            dequeue_task_fair|pick_next_task_fair|finish_task_switch
        __x64_sys_epoll_wait {_EPOLL} ep_scan_ready_list.constprop.0 ep_send_events_proc ep_item_poll.isra.0 \
            sock_poll tcp_poll
        __x64_sys_epoll_pwait {_EPOLL} ep_scan_ready_list.constprop.0 ep_send_events_proc ep_item_poll.isra.0 \
            sock_poll|pipe_poll|eventfd_poll
    """),
    "poll": paths("""
        __x64_sys_poll do_sys_poll sock_poll|pipe_poll|eventfd_poll
        __x64_sys_poll do_sys_poll poll_schedule_timeout.constprop.0 schedule_hrtimeout_range \
            schedule_hrtimeout_range_clock schedule __schedule
    """),
    "sleep": paths(f"""
        __x64_sys_nanosleep hrtimer_nanosleep do_nanosleep {_SLEEP} psi_task_change|finish_task_switch
        __x64_sys_sched_yield do_sched_yield {_SLEEP} update_curr|pick_next_task_fair
    """),
    "files": paths(f"""
        {_OPEN} link_path_walk walk_component lookup_fast __d_lookup_rcu
        {_OPEN} vfs_open do_dentry_open ext4:ext4_file_open|kernfs_fop_open|proc_reg_open|security_file_open
        {_STAT} link_path_walk inode_permission|walk_component
        {_STAT} walk_component lookup_fast __d_lookup_rcu
        {_PUT} dput|locks_remove_posix|security_file_free|kernfs_fop_release
    """),
    "getdents": paths("""
        __x64_sys_getdents64 ksys_getdents64 iterate_dir ext4:ext4_readdir ext4:ext4_htree_fill_tree filldir64
        __x64_sys_getdents64 ksys_getdents64 iterate_dir kernfs_fop_readdir filldir64|kernfs_dir_pos
        __x64_sys_getdents64 ksys_getdents64 iterate_dir proc_pid_readdir proc_fill_cache|next_tgid
    """),
    "memory": paths(f"""
        {_MUNMAP} {_UNMAP} page_remove_rmap|free_swap_cache|tlb_flush_mmu
        {_MUNMAP} tlb_finish_mmu tlb_flush_mmu free_pages_and_swap_cache release_pages free_unref_page_list
        __x64_sys_mmap ksys_mmap_pgoff vm_mmap_pgoff do_mmap mmap_region vma_merge|perf_event_mmap|vm_area_alloc
        __x64_sys_madvise madvise_vma zap_page_range unmap_single_vma unmap_page_range page_remove_rmap
        __x64_sys_madvise madvise_vma zap_page_range tlb_finish_mmu tlb_flush_mmu flush_tlb_mm_range \
            native_flush_tlb_others smp_call_function_many_cond
        __x64_sys_mprotect do_mprotect_pkey mprotect_fixup change_protection change_p4d_range
    """),
    "clone": paths("""
        __x64_sys_clone __do_sys_clone _do_fork copy_process dup_mm copy_page_range copy_pte_range
        __x64_sys_clone __do_sys_clone _do_fork copy_process dup_task_struct|cgroup_can_fork|alloc_pid|sched_fork
    """),
    "execve": paths("""
        __x64_sys_execve __do_execve_file.isra.0 search_binary_handler load_elf_binary \
            elf_map|flush_old_exec|setup_arg_pages
        __x64_sys_execve __do_execve_file.isra.0 sched_exec|copy_strings.isra.0|do_open_execat
    """),
    "exit": paths(f"""
        __x64_sys_exit_group do_group_exit do_exit mmput exit_mmap {_UNMAP} page_remove_rmap
        __x64_sys_exit_group do_group_exit do_exit mmput exit_mmap free_pgtables unlink_file_vma|unlink_anon_vmas
    """),
    "wait4": paths("""
        __x64_sys_wait4 kernel_wait4 do_wait wait_consider_task release_task __exit_signal|proc_flush_task
    """),
    "gpu": paths(f"""
        {_NVIDIA} nvidia:nvidia_ioctl nvidia:rm_ioctl nvidia:_nv000714rm nvidia:_nv043162rm|nvidia:_nv012345rm
        {_NVIDIA} nvidia:nvidia_ioctl nvidia:rm_ioctl nvidia:os_acquire_spinlock|nvidia:os_get_current_tick
        {_UVM} nvidia_uvm:uvm_ioctl nvidia_uvm:uvm_api_map_external_allocation \
            nvidia_uvm:uvm_map_external_allocation_on_gpu
        {_UVM} nvidia_uvm:uvm_ioctl nvidia_uvm:uvm_api_free nvidia_uvm:uvm_va_range_destroy
    """),
}

FAULTS = paths(f"""
    {_FAULT} do_anonymous_page alloc_pages_vma __alloc_pages_nodemask get_page_from_freelist clear_page_erms
    {_FAULT} do_anonymous_page mem_cgroup_try_charge_delay mem_cgroup_try_charge try_charge|get_mem_cgroup_from_mm
    {_FAULT} do_huge_pmd_anonymous_page clear_huge_page clear_subpage clear_page_erms
    {_FAULT} filemap_map_pages alloc_set_pte|xas_find|unlock_page
    {_FAULT} __do_fault ext4:ext4_filemap_fault filemap_fault
    {_FAULT} do_wp_page wp_page_copy copy_page|alloc_pages_vma
    {_FAULT} do_numa_page migrate_misplaced_page|task_numa_fault
""")

INTERRUPTS = paths(f"""
    {_IRQ} {_RX_LIST} {_TCP_IN} tcp_ack|tcp_data_queue|sk_filter_trim_cap
    {_IRQ} {_RX} inet_gro_receive tcp4_gro_receive tcp_gro_receive skb_gro_receive
    {_IRQ} {_ENA} ena:ena_clean_tx_irq napi_consume_skb skb_release_data|skb_release_head_state
    {_IRQ} {_RX_LIST} {_IP_IN} nf_hook_slow iptable_filter:iptable_filter_hook ip_tables:ipt_do_table
    {_TIMER} {_SOFTIRQ} run_timer_softirq call_timer_fn tcp_write_timer|process_timeout|delayed_work_timer_fn
    {_TIMER} {_SOFTIRQ} rcu_core_si rcu_core rcu_do_batch kmem_cache_free|delayed_put_task_struct|file_free_rcu
    {_TIMER} {_SOFTIRQ} run_rebalance_domains rebalance_domains load_balance find_busiest_group update_sd_lb_stats
    {_TIMER} hrtimer_interrupt __hrtimer_run_queues tick_sched_timer tick_sched_handle update_process_times \
        scheduler_tick task_tick_fair update_load_avg
    call_function_single_interrupt smp_call_function_single_interrupt flush_smp_call_function_queue \
        flush_tlb_func_remote
    reschedule_interrupt scheduler_ipi sched_ttwu_pending ttwu_do_activate
""")

# Where an idle core is when an interrupt arrives.
IDLE = "secondary_startup_64 start_secondary cpu_startup_entry do_idle call_cpuidle cpuidle_enter cpuidle_enter_state"

KERNEL_THREADS: dict[str, tuple[str, ...]] = {
    "ksoftirqd": paths(f"""
        {_KSOFTIRQD} {_RX_LIST} {_TCP_IN} tcp_data_queue|tcp_ack
        {_KSOFTIRQD} net_tx_action __qdisc_run fq_codel:fq_codel_dequeue
        {_KSOFTIRQD} rcu_core_si rcu_core rcu_do_batch kmem_cache_free|kfree
    """),
    "kworker": paths(f"""
        {_WORK} wb_workfn wb_writeback writeback_sb_inodes __writeback_single_inode do_writepages ext4:ext4_writepages
        {_WORK} vmstat_update refresh_cpu_vm_stats
        {_WORK} css_killed_work_fn offline_css mem_cgroup_css_offline memcg_offline_kmem|drain_all_stock
        {_WORK} css_free_rwork_fn mem_cgroup_css_free __mem_cgroup_free
        {_WORK} blk_mq_run_work_fn __blk_mq_run_hw_queue blk_mq_sched_dispatch_requests nvme:nvme_queue_rq
    """),
    "kswapd0": paths(f"""
        {_KSWAPD} shrink_node_memcg shrink_inactive_list shrink_page_list|isolate_lru_pages
        {_KSWAPD} shrink_node_memcg shrink_inactive_list shrink_page_list page_referenced rmap_walk
        {_KSWAPD} shrink_slab do_shrink_slab super_cache_count|count_shadow_nodes
        {_KSWAPD} mem_cgroup_iter css_next_descendant_pre
    """),
    "rcu_sched": paths(f"""
        {_KTHREAD} rcu_gp_kthread rcu_gp_fqs_loop force_qs_rnp dyntick_save_progress_counter|rcu_implicit_dynticks_qs
        {_KTHREAD} rcu_gp_kthread rcu_gp_init|rcu_gp_cleanup
    """),
    "jbd2/nvme0n1p1-": paths(f"""
        {_KTHREAD} jbd2:kjournald2 jbd2:jbd2_journal_commit_transaction \
            jbd2:jbd2_journal_write_metadata_buffer|submit_bh|jbd2:__jbd2_journal_refile_buffer
    """),
    "khugepaged": paths(f"""
        {_KTHREAD} khugepaged khugepaged_scan_mm_slot khugepaged_scan_pmd|vm_normal_page
        {_KTHREAD} khugepaged khugepaged_scan_mm_slot khugepaged_scan_pmd collapse_huge_page __collapse_huge_page_copy
    """),
    "kcompactd0": paths(f"""
        {_KTHREAD} kcompactd kcompactd_do_work compact_zone isolate_migratepages_block|migrate_pages
    """),
}

# What the planted incident runs. Before 5.8 one read of memory.numa_stat walks every memory cgroup below, dead ones
# too, sums the counters of every possible core for each, and never lets anything else run
# (mm/memcontrol.c, memcg_numa_stat_show).
_NUMA_STAT = f"{SYSCALL} {_CGROUP_READ} memcg_numa_stat_show"
ZOMBIE_WALK = paths(f"""
    {_NUMA_STAT} mem_cgroup_nr_lru_pages
    {_NUMA_STAT} mem_cgroup_nr_lru_pages cpumask_next find_next_bit
    {_NUMA_STAT} mem_cgroup_node_nr_lru_pages
    {_NUMA_STAT} mem_cgroup_iter css_next_descendant_pre
""")
