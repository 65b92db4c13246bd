"""Sources of events by name, for those who write the rows and those who look for them."""

KERNEL_LOG = "kernel-log"
# Marks that the recorder set by itself as it went.
INCIDENT = "incident"
