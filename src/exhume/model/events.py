"""Sources and kinds of events that several packages look for."""

KERNEL_LOG = "kernel-log"
INCIDENT = "incident"
RECORDER = "recorder"
RESTART = "restart"
NIC_TX_TIMEOUT = "nic-tx-timeout"
# Losses whose count is the sampler's new rate, in Hz.
_RATE_CHANGES = ("rate-lowered", "rate-raised", "rate-refused")


def loss_total(kind: str, count: int) -> int:
    """What a loss adds to the sum of its kind: of changes of the rate, each is one."""
    return 1 if kind in _RATE_CHANGES else count
