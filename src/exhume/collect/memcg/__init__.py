"""Memory cgroups that were removed and live on in the kernel: how many, below whom, held by which pages."""
