"""Detect the stacks of idle cores."""

from collections.abc import Sequence

from exhume.collect.symbols.frame import Frame

# Leaf functions of an idle core. Everything else on an idle core is work: interrupts, softirqs.
IDLE_LEAVES = frozenset(
    (
        "__cpuidle_text_start",
        "__intel_idle",
        "__mwait",
        "acpi_idle_do_entry",
        "acpi_idle_enter",
        "acpi_processor_ffh_cstate_enter",
        "acpi_safe_halt",
        "arch_cpu_idle",
        "arch_cpu_idle_enter",
        "cpu_do_idle",
        "cpu_idle_poll",
        "cpu_psci_cpu_suspend",
        "cpuidle_enter",
        "cpuidle_enter_s2idle",
        "cpuidle_enter_state",
        "default_enter_idle",
        "default_idle",
        "default_idle_call",
        "hv_guest_halt",
        "intel_idle",
        "intel_idle_hlt",
        "intel_idle_ibrs",
        "intel_idle_irq",
        "intel_idle_xstate",
        "io_idle",
        "kvm_guest_halt",
        "mwait_idle",
        "mwait_idle_with_hints",
        "native_safe_halt",
        "poll_idle",
        "psci_cpu_suspend",
        "psci_enter_idle_state",
        "pv_native_safe_halt",
        "tdx_halt",
        "tdx_safe_halt",
        "xen_pvh_halt",
        "xen_safe_halt",
    )
)
# Callers of a platform's idle routine, whatever its name (kernel/sched/idle.c, do_idle; drivers/cpuidle): a leaf right
# below one of these is idle, unless it is an interrupt entry or a step out of the idle loop.
IDLE_CALLERS = frozenset(
    (
        "do_idle",
        "cpuidle_idle_call",
        "call_cpuidle",
        "cpuidle_enter",
        "cpuidle_enter_state",
        "default_idle_call",
    )
)
_NOT_IDLE = (
    "asm_",
    "sysvec_",
    "el1",
    "irq",
    "do_IRQ",
    "common_interrupt",
    "apic_",
    "reschedule_",
    "ret_from_",
    "schedule",
    "__schedule",
    "flush_smp_call_function",
)


def is_idle(frames: Sequence[Frame]) -> bool:
    """Whether the idle task is idle in a stack that has its leaf first."""
    if not frames:
        return False
    leaf = frames[0].name
    if leaf in IDLE_LEAVES or leaf in IDLE_CALLERS:
        return True
    return len(frames) > 1 and frames[1].name in IDLE_CALLERS and not leaf.startswith(_NOT_IDLE)
