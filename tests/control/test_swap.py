"""The swaps that are on, as /proc/swaps has them."""

from tests.control.made_node import node

from exhume.control.swap import Swap, is_on, swaps
from exhume.procfs.host import Host


def test_swaps_are_read_as_the_kernel_writes_them(tmp_path):
    table = "Filename\tType\tSize\tUsed\tPriority\n/a\\040b/swap  file\t64\t4\t-2\n/gone\\040(deleted) file 8 0 5\n"
    host = node(tmp_path, swaps=table)
    assert swaps(host) == [Swap("/a b/swap", 65536, 4096, -2), Swap("/gone", 8192, 0, 5)]
    assert is_on(host, "/a b/swap")
    assert not is_on(host, "/a")
    assert swaps(Host(proc=tmp_path / "none")) == []
