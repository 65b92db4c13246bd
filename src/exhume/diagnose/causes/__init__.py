"""The causes, one file each: a case in, a finding or the reason against it out. They don't know each other.

Most are asked in any order. The last ones look at what nobody else explained, so they come when the others are done.
"""

from collections.abc import Callable

from exhume.diagnose.case import Case
from exhume.diagnose.causes import (
    crash_loop,
    fork_storm,
    mount_storm,
    negative_dentries,
    unknown_kernel_path,
    user_hog,
)
from exhume.diagnose.sheet import Found
from exhume.model.finding import RuledOut

Examine = Callable[[Case], Found | RuledOut]

CAUSES: dict[str, Examine] = {
    "negative-dentries": negative_dentries.examine,
    "mount-storm": mount_storm.examine,
    "fork-storm": fork_storm.examine,
    "crash-loop": crash_loop.examine,
}
LAST: dict[str, Examine] = {
    "user-hog": user_hog.examine,
    "unknown-kernel-path": unknown_kernel_path.examine,
}
