"""Plans against zombies: steps that fit what holds them, least harm first; steps that free only a few come last. Pure
functions of the situation.

Costs are CPU seconds of one core, predicted from measurements on Linux 6.18 for the worst case, where nothing can be
reclaimed and the kernel walks every zombie again and again.
"""

import shlex
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

from exhume.diagnose.growth import THRESHOLDS
from exhume.model.remedy import Plan, Risk, Step
from exhume.model.text import count
from exhume.model.text import size as format_size
from exhume.model.zombies import PAGE, ParentResidual, PinKind, PinnedFile
from exhume.remedy.zombies.situation import Situation, reclaim_file

# Holding a core in the kernel for this long is a spike: enough for a network queue to be missed.
SPIKE_S = 1.0
GIB = 1 << 30

# Measured seconds of a reclaim, by the number of zombies below the cgroup.
_RECLAIM = ((0, 0.0), (5_000, 1.65), (20_000, 5.2), (68_000, 18.4))
_DROP_CACHES_S_PER_GIB = 0.25
_SWAP_OUT_S_PER_GIB = 1.5
_SWAP_IN_S_PER_GIB = 2.0
_FADVISE_S_PER_FILE = 50e-6


def reclaim_seconds(zombies: int) -> float:
    """Predict reclaim on a parent with this many zombies, interpolated linearly and extrapolated beyond the last
    point."""
    counts = [count for count, _ in _RECLAIM]
    upper = min(max(1, bisect_left(counts, zombies)), len(_RECLAIM) - 1)
    (low_count, low), (high_count, high) = _RECLAIM[upper - 1], _RECLAIM[upper]
    return low + (zombies - low_count) * (high - low) / (high_count - low_count)


def drop_caches_seconds(page_cache: int) -> float:
    return page_cache / GIB * _DROP_CACHES_S_PER_GIB


def swap_out_seconds(size: int) -> float:
    return size / GIB * _SWAP_OUT_S_PER_GIB


def swap_in_seconds(size: int) -> float:
    return size / GIB * _SWAP_IN_S_PER_GIB


def fadvise_seconds(files: int) -> float:
    return files * _FADVISE_S_PER_FILE


def is_spike(seconds: float) -> bool:
    return seconds >= SPIKE_S


SWAPFILE = "zombies.swap"
CLEAN_UP = "clean-up"
# Drops caches although no page was found that this would free.
DROP_UNSEEN = "drop-caches-unseen"
DROP_CACHES = "/proc/sys/vm/drop_caches"
MIB = 1 << 20
# Memory that must stay free when a swap area is turned off.
SPARE_MEMORY = 256 * MIB
SWAPFILE_LEAST = 16 * MIB


def fadvise_step(situation: Situation) -> Step | None:
    """Drop the cached pages of the named files only; everything else stays cached."""
    files = _pins(situation, PinKind.FILE)
    if not files:
        return None
    seconds = fadvise_seconds(len(files))
    return Step(
        id="fadvise",
        title=f"let go of the cached pages of {count(len(files), 'file')}",
        why="their data is on disk; only its cached pages are charged to zombies",
        action="fadvise",
        targets=tuple(file.path for file in files),
        commands=tuple(
            f"sync {shlex.quote(file.path)}; dd if={shlex.quote(file.path)} iflag=nocache count=0 status=none"
            for file in files
        ),
        frees_at_most=_at_most(situation, sum(file.pages for file in files) * PAGE),
        cpu_seconds=seconds,
        spike=is_spike(seconds),
        bytes=sum(file.bytes for file in files),
        risk=Risk.NONE,
        harm="these files are read from disk again when they are next used; what is dirty is written first",
        undo="not needed: reading a file caches it again",
    )


def reclaim_step(situation: Situation, parents: Sequence[ParentResidual]) -> Step | None:
    """Reclaim below the parents. Nothing else can free pages that a live process has mapped."""
    able = [parent for parent in parents if _reclaimable(parent) and reclaim_file(parent)]
    if not able:
        return None
    seconds = sum(reclaim_seconds(_zombies_below(situation, parent)) for parent in able)
    spike = is_spike(seconds)
    mostly_stuck = sum(_swappable(parent) for parent in able) > sum(_maybe_cached(parent) for parent in able)
    return Step(
        id="reclaim",
        title=f"reclaim cached pages below {count(len(able), 'parent cgroup')}",
        why="cached file pages, mapped ones too, are charged to zombies below"
        + ("; most other pages there can't be reclaimed, which makes it slow" if mostly_stuck else ""),
        action="reclaim",
        targets=tuple(parent.path for parent in able),
        commands=tuple(_reclaim_command(parent) for parent in able),
        frees_at_most=_at_most_below(situation, able, _maybe_cached),
        cpu_seconds=seconds,
        spike=spike,
        bytes=sum(_maybe_cached(parent) for parent in able),
        risk=Risk.MEDIUM if spike else Risk.LOW,
        harm="live cgroups below the same parents lose cached pages too"
        + ("; one core is busy in the kernel meanwhile" if spike else ""),
        undo="not needed: what is used again is cached again",
    )


def reclaim_inodes_step(situation: Situation) -> Step | None:
    """Reclaim inodes, if v2 counts zombies without charged pages: cached inodes that they last wrote hold them."""
    able = [parent for parent in situation.residuals if parent.dying and parent.version == 2 and reclaim_file(parent)]
    if not able:
        return None
    dying = sum(parent.dying or 0 for parent in able)
    seconds = sum(reclaim_seconds(parent.dying or 0) for parent in able)
    return Step(
        id="reclaim",
        title=f"reclaim below {count(len(able), 'parent cgroup')}",
        why="no page is charged to zombies, but files in memory remember which cgroup wrote them last",
        action="reclaim",
        targets=tuple(parent.path for parent in able),
        commands=tuple(f"echo {64 * MIB} > {shlex.quote(str(reclaim_file(parent)))}" for parent in able),
        frees_at_most=dying,
        cpu_seconds=seconds,
        spike=is_spike(seconds),
        risk=Risk.MEDIUM if is_spike(seconds) else Risk.LOW,
        harm="live cgroups below the same parents lose cached pages",
        undo="not needed: what is used again is cached again",
    )


def drop_caches_step(situation: Situation, parents: Sequence[ParentResidual]) -> Step | None:
    """Drop the whole node's page cache: the only step that certainly reaches filesystem metadata."""
    if sum(_droppable(parent) for parent in parents) < PAGE:
        return None
    metadata = sum(parent.metadata_bytes for parent in parents) or _pages(_pins(situation, PinKind.METADATA))
    why = (
        "blocks of filesystems (directories, inode tables) are charged to zombies; only this reaches all of them"
        if metadata
        else "it reaches cached pages that no file could be named for"
    )
    return _drop_caches(situation, "drop-caches", why, _at_most_below(situation, parents, _droppable))


def _drop_caches(situation: Situation, action: str, why: str, frees_at_most: int) -> Step:
    seconds = drop_caches_seconds(situation.page_cache)
    spike = is_spike(seconds)
    return Step(
        id="drop-caches",
        title="drop the page cache of the node",
        why=why,
        action=action,
        targets=(DROP_CACHES,),
        commands=("sync", f"echo 1 > {DROP_CACHES}"),
        frees_at_most=frees_at_most,
        cpu_seconds=seconds,
        spike=spike,
        bytes=situation.page_cache,
        risk=Risk.MEDIUM,
        harm=f"all {format_size(situation.page_cache)} of cached files have to be read from disk again; until then "
        "everything is slower",
        undo="not needed: what is used again is cached again",
    )


def swap_through_step(situation: Situation, parents: Sequence[ParentResidual]) -> Step | None:
    """Swap tmpfs pages, which have no disk behind them, out to a swapfile and back, charged to the live parent."""
    able = [parent for parent in parents if _swappable(parent) >= PAGE and reclaim_file(parent)]
    free = [parent for parent in able if parent.path not in situation.unswappable]
    if not able:
        return None
    obstacle = "" if free else f"a limit of memory.swap.max keeps {able[0].path} out of swap; raise it first"
    able = free or able
    size = sum(_swappable(parent) for parent in able)
    file_size = swapfile_size(size)
    path = situation.place.path / SWAPFILE
    seconds = sum(reclaim_seconds(_zombies_below(situation, parent)) for parent in able)
    seconds += swap_out_seconds(size) + swap_in_seconds(size)
    spike = is_spike(seconds)
    obstacle = obstacle or _swap_obstacle(situation, file_size)
    quoted = shlex.quote(str(path))
    return Step(
        id="swap-through",
        title=f"move {format_size(size)} of shared memory out to a temporary swapfile and back",
        why="pages of tmpfs and shared memory are charged to zombies; on their way back they are charged to the parent"
        + (f". It can't be done now: {obstacle}" if obstacle else ""),
        action="" if obstacle else "swap-through",
        targets=tuple(parent.path for parent in able),
        commands=(
            f"fallocate -l {file_size} {quoted}; chmod 600 {quoted}; mkswap {quoted}; swapon -p 32767 {quoted}",
            *(_reclaim_command(parent, swap=True) for parent in able),
            f"swapoff {quoted}; rm {quoted}",
        ),
        frees_at_most=_at_most_below(situation, able, _swappable),
        cpu_seconds=seconds,
        spike=spike,
        bytes=file_size,
        risk=Risk.MEDIUM,
        harm="no data is lost; live cgroups below the same parents lose cached pages, and are kept from swapping"
        + ("; one core is busy in the kernel" if spike else "")
        + ("; a kubelet that starts meanwhile refuses to, unless failSwapOn is false" if situation.has_pods else ""),
        undo="the swapfile is taken off and removed at the end, also when it is interrupted",
        params=tuple(("file", file.path) for file in _pins(situation, PinKind.SHMEM)),
    )


def copy_step(situation: Situation, parents: Sequence[ParentResidual]) -> Step | None:
    """Copy files, since the root of v1 can't be reclaimed: a copy is charged to the process that makes it."""
    if not any(_swappable(parent) >= PAGE and reclaim_file(parent) is None for parent in parents):
        return None
    files = _pins(situation, PinKind.SHMEM)
    return Step(
        id="copy",
        title=f"replace {count(len(files), 'file')} on tmpfs by copies"
        if files
        else "remove or replace files on tmpfs",
        why="their pages are charged to zombies right below the root of the hierarchy, which the kernel won't reclaim",
        targets=tuple(file.path for file in files),
        commands=tuple(
            f"cp -a {shlex.quote(file.path)} {shlex.quote(file.path + '.new')} && "
            f"mv {shlex.quote(file.path + '.new')} {shlex.quote(file.path)}"
            for file in files
        ),
        frees_at_most=_at_most(situation, sum(_swappable(parent) for parent in parents)),
        risk=Risk.MEDIUM,
        harm="a process that has such a file open goes on with the old one: stop it first",
        reversible=False,
        undo="none: the old files are gone",
    )


def swapoff_step(situation: Situation, parents: Sequence[ParentResidual]) -> Step | None:
    """Read swapped pages back into memory, charged to the process that does so; until then they hold a zombie."""
    held = sum(parent.swap_bytes for parent in parents)
    used = [swap for swap in situation.swaps if swap.used]
    if not held or not used:
        return None
    size = sum(swap.used for swap in used)
    seconds = swap_in_seconds(size)
    short = size + SPARE_MEMORY - situation.memory_available
    return Step(
        id="swapoff",
        title=f"take {count(len(used), 'swap')} off, and put it on again"
        if len(used) == 1
        else f"take {len(used)} swaps off, one after the other, and put them on again",
        why="swapped pages are charged to zombies until they come back to memory"
        + (f". It can't be done now: it takes {format_size(short)} more memory than is available" if short > 0 else ""),
        action="" if short > 0 else "swapoff",
        targets=tuple(swap.path for swap in used),
        commands=tuple(
            f"swapoff {shlex.quote(swap.path)}; swapon -p {swap.priority} {shlex.quote(swap.path)}"
            if swap.priority >= 0
            else f"swapoff {shlex.quote(swap.path)}; swapon {shlex.quote(swap.path)}"
            for swap in used
        ),
        frees_at_most=_at_most(situation, held),
        cpu_seconds=seconds,
        spike=is_spike(seconds),
        bytes=size,
        risk=Risk.MEDIUM,
        harm=f"everything swapped comes back to memory ({format_size(size)}), also what is not needed, and is "
        "charged to the root cgroup",
        undo="every swap is put on again with its priority, also when it is interrupted",
    )


def holders_step(situation: Situation, *, mapped_too: bool) -> Step | None:
    """End the holders: only the process can release locked pages, or mapped ones that reclaim doesn't reach."""
    files = _pins(situation, PinKind.MLOCKED) + (_pins(situation, PinKind.MAPPED) if mapped_too else [])
    holders = {holder.pid: holder for file in files for holder in file.holders}
    locked = sum(parent.unevictable_bytes for parent in situation.residuals)
    if not files and not locked:
        return None
    names = ", ".join(f"{holder.comm} (pid {holder.pid})" for holder in holders.values())
    return Step(
        id="holders",
        title=f"stop or restart {names}" if names else "find and stop the process that locks memory",
        why="it keeps pages in memory that are charged to zombies; nothing frees them while it lives",
        targets=tuple(str(pid) for pid in holders) or tuple(file.path for file in files),
        commands=tuple(f"kill {pid}" for pid in holders),
        frees_at_most=_at_most(situation, max(locked, _pages(files) * PAGE)),
        risk=Risk.HIGH,
        harm="the process ends; whether that hurts only its owner knows",
        reversible=False,
        undo="start it again",
    )


def reboot_step(why: str) -> Step:
    return Step(
        id="reboot",
        title="reboot the node",
        why=why,
        commands=("systemctl reboot",),
        risk=Risk.HIGH,
        harm="everything on the node stops",
        reversible=False,
        undo="none",
    )


def clean_up_step(situation: Situation) -> Step:
    return Step(
        id=CLEAN_UP,
        title="remove what an earlier run left behind",
        why="it was killed before it could: " + "; ".join(situation.leftovers),
        action="clean-up",
        targets=situation.leftovers,
        risk=Risk.NONE,
        harm="none",
        undo="not needed",
    )


def _pins(situation: Situation, kind: PinKind) -> list[PinnedFile]:
    return [file for file in situation.pins.files if file.kind == kind]


def _pages(files: Iterable[PinnedFile]) -> int:
    return sum(file.pages for file in files)


def _reclaimable(parent: ParentResidual) -> bool:
    """Whether a parent has cached data for which reclaim is the mildest step: not if all of it is locked, or metadata,
    which dropping caches certainly frees."""
    return _maybe_cached(parent) - parent.metadata_bytes - _locked(parent) >= PAGE


def _maybe_cached(parent: ParentResidual) -> int:
    """Cached files, and pages of unknown kind, which usually are cached files."""
    return parent.file_bytes + parent.unclassified_bytes


def _droppable(parent: ParentResidual) -> int:
    """Cached pages that no process maps or locks."""
    return max(0, _maybe_cached(parent) - max(parent.mapped_bytes, _locked(parent)))


def _locked(parent: ParentResidual) -> int:
    return min(parent.unevictable_bytes, parent.file_bytes)


def _swappable(parent: ParentResidual) -> int:
    return parent.shmem_bytes + parent.anon_bytes


def swapfile_size(size: int) -> int:
    """The required size plus a quarter, in whole mebibytes."""
    return max(SWAPFILE_LEAST, -(-(size + size // 4) // MIB) * MIB + MIB)


def _swap_obstacle(situation: Situation, file_size: int) -> str:
    if situation.place.why_not:
        return situation.place.why_not
    if situation.place.free < file_size + file_size // 10:
        needed = format_size(file_size)
        return f"{situation.place.path} has no room for a swapfile of {needed}; name another with --work-dir"
    if situation.memory_available < SPARE_MEMORY:
        return "memory is too short to bring pages back from swap"
    return ""


def _zombies_below(situation: Situation, parent: ParentResidual) -> int:
    """How many zombies a reclaim would walk, at worst."""
    if parent.dying is not None:
        return parent.dying
    pages = parent.bytes // PAGE
    return pages if situation.census.dying is None else min(pages, situation.census.dying)


def _at_most_below(
    situation: Situation, parents: Sequence[ParentResidual], held: Callable[[ParentResidual], int]
) -> int:
    """How many zombies pages of one kind hold below some parents, each of which has at most what v2 counts there."""
    pages = [(-(-held(parent) // PAGE), parent.dying) for parent in parents]
    freed = sum(number if dying is None else min(number, dying) for number, dying in pages)
    return freed if situation.census.dying is None else min(freed, situation.census.dying)


def _at_most(situation: Situation, size: int) -> int:
    """How many zombies this many bytes hold at most: each one is held by at least one page."""
    pages = -(-size // PAGE)
    return pages if situation.census.dying is None else min(pages, situation.census.dying)


def _reclaim_command(parent: ParentResidual, *, swap: bool = False) -> str:
    file = shlex.quote(str(reclaim_file(parent)))
    if parent.version == 1:
        return f"echo 0 > {file}"
    amount = _swappable(parent) if swap else _maybe_cached(parent)
    return f"echo {amount} > {file}"


TARGET = "zombies"


def make_plan(situation: Situation) -> Plan:
    """Plan what to do, ordered by least harm. Without steps there is nothing to do; the summary says why."""
    dying = situation.census.dying
    parents = [parent for parent in situation.residuals if parent.bytes >= PAGE]
    cleaning = [clean_up_step(situation)] if situation.leftovers else []
    blind = (*situation.census.blind_spots, *situation.blind_spots, *situation.pins.blind_spots)
    if dying == 0:
        return Plan(TARGET, dying, "There are no zombies.", tuple(cleaning), blind)
    if not parents:
        summary, fitting = _nothing_holds_them(situation, dying)
    else:
        summary, fitting = _summary(situation, parents), _fitting(situation, parents)
    return Plan(TARGET, dying, summary, (*cleaning, *fitting), blind)


def _fitting(situation: Situation, parents: Sequence[ParentResidual]) -> list[Step]:
    reclaim = reclaim_step(situation, parents)
    planned = [
        fadvise_step(situation),
        reclaim,
        drop_caches_step(situation, parents),
        swap_through_step(situation, parents),
        copy_step(situation, parents),
        swapoff_step(situation, parents),
        holders_step(situation, mapped_too=reclaim is None),
    ]
    shares = _shares(situation, parents)
    found = [step for step in planned if step is not None]
    # Steps that free hardly any come after those that free most, however mild they are: they cost much for little.
    found.sort(key=lambda step: step.automatic and _likely_part(step, shares) < _FEW)
    if not any(step.automatic or step.targets for step in found):
        found.append(reboot_step("nothing that can be done from here lets go of these pages"))
    return found


# The kinds of pages that a step frees.
_FREED_BY = {
    "fadvise": (PinKind.FILE,),
    "reclaim": (PinKind.FILE, PinKind.MAPPED),
    "drop-caches": (PinKind.FILE, PinKind.METADATA),
    "swap-through": (PinKind.SHMEM, PinKind.ANON),
    "swapoff": (PinKind.SWAP,),
}
# A step frees few if it frees less than this part of all zombies; and the part of the held pages that the files found
# must account for, so that their number says what holds how many.
_FEW, _MOST_FOUND = 0.1, 0.5


def _likely_part(step: Step, shares: Mapping[PinKind, float]) -> float:
    return sum(shares.get(kind, 0.0) for kind in _FREED_BY.get(step.id, tuple(PinKind)))


def _shares(situation: Situation, parents: Sequence[ParentResidual]) -> dict[PinKind, float]:
    """The part of the zombies that each kind of page probably holds: by the number of files found, as each pins at
    least one, if most were found; otherwise by pages."""
    files = situation.pins.files
    found = sum(file.bytes for file in files if file.kind is not PinKind.SWAP)
    held: dict[PinKind, float] = {}
    if situation.pins.expected_bytes and found >= _MOST_FOUND * situation.pins.expected_bytes:
        for file in files:
            # A block device is a single file, and each of its pages may hold a different zombie.
            held[file.kind] = held.get(file.kind, 0.0) + (file.pages if file.kind is PinKind.METADATA else 1)
    else:
        held[PinKind.FILE] = sum(max(0, _maybe_cached(parent) - parent.metadata_bytes) for parent in parents) / PAGE
        held[PinKind.METADATA] = sum(parent.metadata_bytes for parent in parents) / PAGE
        held[PinKind.SHMEM] = sum(_swappable(parent) for parent in parents) / PAGE
    held[PinKind.SWAP] = sum(parent.swap_bytes for parent in parents) / PAGE
    total = sum(held.values())
    return {kind: amount / total for kind, amount in held.items()} if total else {}


def _nothing_holds_them(situation: Situation, dying: int | None) -> tuple[str, list[Step]]:
    """The summary and steps if no page is charged to a removed cgroup."""
    where = f" below {situation.below}" if situation.below else ""
    if dying is None:
        return f"No page is seen charged to removed cgroups{where}, and zombies can't be counted here.", []
    counted = f"{dying:,} removed cgroups are still in the kernel, but no page is seen charged to any{where}"
    if situation.fell > 0:
        return (
            f"{counted}, and {situation.fell:,} went by themselves in {situation.after_s:.1f} s: this kernel lets "
            "go of them. There is nothing to do but wait.",
            [],
        )
    written = reclaim_inodes_step(situation)
    if situation.below and written is None:
        return f"{counted}. There is nothing to free there.", []
    if dying <= THRESHOLDS.normal:
        return f"{counted}. That few come and go on any machine: there is nothing to do.", []
    if written is not None:
        return f"{counted}: files that they wrote last, still in memory without their pages, are what keeps them.", [
            written
        ]
    drop = _drop_caches(situation, DROP_UNSEEN, "cached pages that don't show on this kernel may hold them", dying)
    return f"{counted}: something that can't be seen from here holds them.", [
        drop,
        reboot_step("if dropping caches does not free them, nothing else that can be done from here does"),
    ]


def _summary(situation: Situation, parents: Sequence[ParentResidual]) -> str:
    parts = {
        "cached files": sum(max(0, p.file_bytes - p.metadata_bytes) for p in parents),
        "filesystem metadata": sum(p.metadata_bytes for p in parents),
        "shared memory": sum(p.shmem_bytes for p in parents),
        "anonymous memory": sum(p.anon_bytes for p in parents),
        "swap": sum(p.swap_bytes for p in parents),
        "pages of unknown kind": sum(p.unclassified_bytes for p in parents),
    }
    held = ", ".join(f"{format_size(size)} of {name}" for name, size in parts.items() if size >= PAGE)
    worst = max(parents, key=lambda parent: parent.bytes)
    others = f" and {count(len(parents) - 1, 'other parent')}" if len(parents) > 1 else ""
    dying = situation.census.dying
    who = "An unknown number of zombies" if dying is None else count(dying, "zombie")
    few = (
        " So few are normal: these steps free them, but nothing needs it."
        if dying is not None and dying <= THRESHOLDS.normal
        else ""
    )
    return f"{who}, held by {held} charged below {worst.path}{others}.{few}"
