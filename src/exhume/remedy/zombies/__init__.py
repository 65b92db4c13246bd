"""Free memory cgroups that were removed but still exist in the kernel, without a reboot if possible."""
