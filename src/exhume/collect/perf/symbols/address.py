"""User addresses as the hardware hands them out, without the bits that are not part of the address.

On aarch64 the top byte of a pointer may hold a tag, and a return address on the stack carries a pointer
authentication code in the bits above the virtual address. Both have to go before an address is looked up.
"""

import numpy as np
import numpy.typing as npt

from exhume.collect.host import Host

AARCH64_VA_BITS = 48
_KERNEL_HALF = np.uint64(1 << 55)


def strip_tags(addresses: npt.NDArray[np.uint64], va_bits: int = AARCH64_VA_BITS) -> npt.NDArray[np.uint64]:
    """aarch64 user addresses cut to `va_bits`; kernel addresses (bit 55 set) are left as they are."""
    mask = np.uint64((1 << va_bits) - 1)
    return np.where(addresses & _KERNEL_HALF, addresses, addresses & mask)


def user_va_bits(host: Host) -> int:
    """How many bits a user address has on this kernel, seen from where our own stack lies.

    Kernels with 52 bits still place ordinary processes below 48 (more only on request), and kernels built for
    39 or 42 bits put authentication codes right above those.
    """
    try:
        maps = (host.proc / "self/maps").read_bytes()
    except OSError:
        return AARCH64_VA_BITS
    tops = [
        int(line.partition(b" ")[0].partition(b"-")[2], 16) for line in maps.splitlines() if b"[vsyscall]" not in line
    ]
    return max(((top - 1).bit_length() for top in tops), default=AARCH64_VA_BITS)
