"""The Container Runtime Interface: what containerd, CRI-O and their like tell of pods and containers over a socket."""
