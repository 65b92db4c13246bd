"""Names by which events are found again: the source of kernel-log lines, the kind of the recorder's own marks."""

KERNEL_LOG = "kernel-log"
INCIDENT = "incident"
RECORDER = "recorder"
RESTART = "restart"
