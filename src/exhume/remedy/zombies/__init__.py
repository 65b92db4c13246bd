"""Freeing memory cgroups that were removed and live on in the kernel, without a reboot where that can be done."""
