"""The plan against zombies: what fits that which holds them, in the order of least harm. Values in, steps out."""

from collections.abc import Sequence

from exhume.diagnose.zombies import THRESHOLDS
from exhume.model.remedy import Plan, Step
from exhume.model.text import count
from exhume.model.text import size as size_words
from exhume.model.zombies import PAGE, ParentResidual
from exhume.remedy.zombies import steps
from exhume.remedy.zombies.situation import Situation

TARGET = "zombies"


def make_plan(situation: Situation) -> Plan:
    """What to do, in the order of least harm. Without steps there is nothing to do; the summary says why."""
    dying = situation.census.dying
    parents = [parent for parent in situation.residuals if parent.bytes >= PAGE]
    cleaning = [steps.clean_up(situation)] if situation.leftovers else []
    blind = (*situation.census.blind_spots, *situation.blind_spots, *situation.pins.blind_spots)
    if dying == 0:
        return Plan(TARGET, dying, "There are no zombies.", tuple(cleaning), blind)
    if not parents:
        summary, fitting = _nothing_holds_them(situation, dying)
    else:
        summary, fitting = _summary(situation, parents), _fitting(situation, parents)
    return Plan(TARGET, dying, summary, (*cleaning, *fitting), blind)


def _fitting(situation: Situation, parents: Sequence[ParentResidual]) -> list[Step]:
    reclaim = steps.reclaim(situation, parents)
    planned = [
        steps.let_go_of_files(situation),
        reclaim,
        steps.drop_caches(situation, parents),
        steps.through_swap(situation, parents),
        steps.copy_by_hand(situation, parents),
        steps.swap_off(situation, parents),
        steps.ask_holders(situation, mapped_too=reclaim is None),
    ]
    found = [step for step in planned if step is not None]
    if not any(step.automatic or step.targets for step in found):
        found.append(steps.reboot("nothing that can be done from here lets go of these pages"))
    return found


def _nothing_holds_them(situation: Situation, dying: int | None) -> tuple[str, list[Step]]:
    """No page is charged to a removed cgroup, so no step of ours could free one."""
    where = f" below {situation.below}" if situation.below else ""
    if dying is None:
        return f"No page is charged to removed cgroups{where}, and zombies can't be counted here.", []
    told = f"{dying:,} removed cgroups are still in the kernel, but no page is charged to any{where}"
    if situation.fell > 0:
        return (
            f"{told}, and {situation.fell:,} went by themselves in {situation.after_s:.1f} s: this kernel lets "
            "go of them. There is nothing to do but wait.",
            [],
        )
    written = steps.reclaim_written_files(situation)
    if situation.below and written is None:
        return f"{told}. There is nothing to free there.", []
    if dying <= THRESHOLDS.normal:
        return f"{told}. That few come and go on any machine: there is nothing to do.", []
    if written is not None:
        return f"{told}: files that they wrote last, still in memory without their pages, are what keeps them.", [
            written
        ]
    return f"{told}: something that can't be seen from here holds them.", [
        steps.reboot("no pages are charged to them, so neither reclaim nor dropping caches can free them")
    ]


def _summary(situation: Situation, parents: Sequence[ParentResidual]) -> str:
    parts = {
        "cached files": sum(max(0, p.file_bytes - p.metadata_bytes) for p in parents),
        "filesystem metadata": sum(p.metadata_bytes for p in parents),
        "shared memory": sum(p.shmem_bytes for p in parents),
        "anonymous memory": sum(p.anon_bytes for p in parents),
        "swap": sum(p.swap_bytes for p in parents),
    }
    held = ", ".join(f"{size_words(size)} of {name}" for name, size in parts.items() if size >= PAGE)
    worst = max(parents, key=lambda parent: parent.bytes)
    others = f" and {count(len(parents) - 1, 'other parent')}" if len(parents) > 1 else ""
    dying = situation.census.dying
    who = "An unknown number of zombies" if dying is None else count(dying, "zombie")
    few = " So few are normal, and need no remedy." if dying is not None and dying <= THRESHOLDS.normal else ""
    return f"{who}, held by {held} charged below {worst.path}{others}.{few}"
