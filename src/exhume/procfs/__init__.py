"""Parsers of kernel text interfaces, one module per file format, named after it: bytes in, typed values out.

The only I/O is in `host` (the locations of the trees, and a file that is read repeatedly), and in
`mountinfo.read_mounts` and `cpulist.online_cpus`, which return nothing when the file cannot be read.
"""
