"""Parsers of kernel text interfaces, one module per file format, named after it: bytes in, typed values out.

The only I/O is in `host` (where the trees are, and a file that is read again and again) and in `mountinfo.read_mounts`
and `cpulist.online_cpus`, which return nothing where the file can't be read.
"""
