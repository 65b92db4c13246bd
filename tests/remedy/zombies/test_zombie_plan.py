"""Which steps a plan has for which kind of pin, in which order, and what it says they cost."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.remedy.zombies.situations import GIB, ROOT, parent, pinned, situation

from exhume.control.swap import Swap
from exhume.model.remedy import Risk, Step
from exhume.model.zombies import Holder, PinKind
from exhume.remedy.zombies.apply import still_held
from exhume.remedy.zombies.plan import SPIKE_S, make_plan, reclaim_seconds
from exhume.remedy.zombies.situation import WorkPlace


def ids(plan) -> list[str]:
    return [step.id for step in plan.steps]


def only(plan, name):
    return next(step for step in plan.steps if step.id == name)


def test_named_files_come_first_then_the_parent_then_the_whole_node():
    files = tuple(pinned(f"/data/{number}", PinKind.FILE) for number in range(500))
    plan = make_plan(situation(512, parent(file=500), pins=files))
    assert ids(plan) == ["fadvise", "reclaim", "drop-caches"]
    assert plan.count == 512
    fadvise, reclaim, drop = plan.steps
    assert fadvise.targets == tuple(f"/data/{number}" for number in range(500))
    assert fadvise.commands[7] == "sync /data/7; dd if=/data/7 iflag=nocache count=0 status=none"
    assert fadvise.frees_at_most == 500
    assert reclaim.commands == (f"echo 0 > {ROOT}/docker/memory.force_empty",)
    assert reclaim.frees_at_most == 500
    assert drop.commands == ("sync", "echo 1 > /proc/sys/vm/drop_caches")
    assert [step.risk for step in plan.steps] == [Risk.NONE, Risk.LOW, Risk.MEDIUM]
    assert all(step.automatic and step.harm and step.undo for step in plan.steps)


def test_mapped_files_are_left_to_reclaim():
    file = pinned("/data/shared", PinKind.MAPPED, 500, (Holder(7, "server", "mapped"),))
    assert ids(make_plan(situation(500, parent(file=500, mapped=500), pins=(file,)))) == ["reclaim"]


def test_mapped_files_below_the_root_of_v1_need_their_holder():
    file = pinned("/data/shared", PinKind.MAPPED, 500, (Holder(7, "server", "mapped"),))
    plan = make_plan(situation(500, parent("/", file=500, mapped=500), pins=(file,)))
    assert ids(plan) == ["holders"]
    assert plan.steps[0].title == "stop or restart server (pid 7)"


def test_metadata_is_dropped_with_the_caches():
    plan = make_plan(situation(500, parent(file=500, metadata=500)))
    assert ids(plan) == ["drop-caches"]
    assert "filesystem metadata" in plan.summary


def test_shared_memory_goes_through_a_swapfile():
    plan = make_plan(situation(500, parent(shmem=500)))
    assert ids(plan) == ["swap-through"]
    step = plan.steps[0]
    assert step.automatic
    assert step.commands[0].startswith("fallocate -l 16777216 /var/lib/exhume-fix/zombies.swap;")
    assert step.commands[1:] == (
        f"echo 0 > {ROOT}/docker/memory.force_empty",
        "swapoff /var/lib/exhume-fix/zombies.swap; rm /var/lib/exhume-fix/zombies.swap",
    )


def test_files_of_tmpfs_that_were_found_are_paged_out_by_name():
    files = (pinned("/shm/a", PinKind.SHMEM), pinned("/data/b", PinKind.FILE), pinned("/shm/c", PinKind.SHMEM))
    plan = make_plan(situation(500, parent(shmem=500, file=10), pins=files))
    assert only(plan, "swap-through").params == (("file", "/shm/a"), ("file", "/shm/c"))


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (
            {"place": WorkPlace(Path("/run/x"), 100 * GIB, "/run/x is on tmpfs, which can't hold a swapfile")},
            "on tmpfs",
        ),
        ({"place": WorkPlace(Path("/small"), 1 << 20)}, "no room"),
        ({"memory_available": 1 << 20}, "memory is too short"),
        ({"unswappable": frozenset({f"{ROOT}/docker"})}, "memory.swap.max"),
    ],
)
def test_a_swapfile_that_can_not_be_had_is_said(others, said):
    step = make_plan(situation(500, parent(shmem=500), **others)).steps[0]
    assert step.id == "swap-through"
    assert not step.automatic
    assert said in step.why


def test_shared_memory_right_below_the_root_of_v1_is_for_a_person():
    files = (pinned("/dev/shm/a b", PinKind.SHMEM, 500),)
    plan = make_plan(situation(500, parent("/", shmem=500), pins=files))
    assert ids(plan) == ["copy"]
    assert not plan.steps[0].automatic
    assert plan.steps[0].commands == (
        "cp -a '/dev/shm/a b' '/dev/shm/a b.new' && mv '/dev/shm/a b.new' '/dev/shm/a b'",
    )


def test_the_root_of_v2_can_be_reclaimed():
    plan = make_plan(situation(500, parent("/", version=2, dying=500, shmem=500)))
    assert ids(plan) == ["swap-through"]
    assert plan.steps[0].commands[1] == f"echo {500 * 4096} > {ROOT}/memory.reclaim"


def test_swapped_pages_come_back_by_taking_the_swap_off():
    swaps = (Swap("/swap/file", GIB, 4096 * 600, 5), Swap("/dev/sdb1", GIB, 0, -2))
    plan = make_plan(situation(500, parent(swap=500), swaps=swaps))
    assert ids(plan) == ["swapoff"]
    assert plan.steps[0].targets == ("/swap/file",)
    assert plan.steps[0].commands == ("swapoff /swap/file; swapon -p 5 /swap/file",)


def test_a_swap_is_not_taken_off_when_memory_is_short():
    swaps = (Swap("/swap/file", 16 * GIB, 9 * GIB, -2),)
    step = make_plan(situation(500, parent(swap=500), swaps=swaps)).steps[0]
    assert step.id == "swapoff"
    assert not step.automatic
    assert "1.2 GiB more memory than is available" in step.why


def test_locked_pages_need_the_end_of_their_holder():
    file = pinned("/data/model", PinKind.MLOCKED, 500, (Holder(99, "trainer", "mlocked"),))
    plan = make_plan(situation(500, parent(file=500, mapped=500, unevictable=500), pins=(file,)))
    assert ids(plan) == ["holders"]
    step = plan.steps[0]
    assert not step.automatic
    assert step.title == "stop or restart trainer (pid 99)"
    assert step.targets == ("99",)


def test_locked_pages_without_a_known_holder_leave_a_reboot():
    assert ids(make_plan(situation(500, parent(file=500, unevictable=500)))) == ["holders", "reboot"]


def test_zombies_whose_pages_do_not_show_are_tried_by_dropping_caches_before_a_reboot():
    plan = make_plan(situation(68_680))
    assert [(step.id, step.automatic) for step in plan.steps] == [("drop-caches", True), ("reboot", False)]
    assert still_held([], plan.steps[0]), "it is taken although no page is seen that it would free"


def test_pages_of_unknown_kind_are_reclaimed_then_caches_dropped():
    plan = make_plan(situation(500, parent(unclassified=500)))
    assert ids(plan) == ["reclaim", "drop-caches"]
    assert [step.frees_at_most for step in plan.steps] == [500, 500]
    assert still_held([parent(unclassified=1)], plan.steps[0])
    assert not still_held([parent(shmem=1)], plan.steps[0])


def test_files_that_were_written_last_by_zombies_of_v2_are_reclaimed():
    found = make_plan(situation(300, parent("/docker", 2, 300), parent("/", 2, 0)))
    assert [(step.id, step.targets) for step in found.steps] == [("reclaim", (f"{ROOT}/docker",))]
    assert found.steps[0].frees_at_most == 300
    assert "wrote last" in found.summary
    assert found.steps[0].commands == (f"echo 67108864 > {ROOT}/docker/memory.reclaim",)


@pytest.mark.parametrize(
    ("held", "needed"),
    [
        (parent("/docker", 2, 300), {"reclaim"}),
        (parent("/docker", 2, 300, file=1), {"fadvise", "reclaim", "drop-caches"}),
        (parent("/docker", 2, 300, shmem=1), {"swap-through"}),
        (parent("/docker", 2, 0), set()),
        (parent("/docker", 1, None), set()),
    ],
)
def test_a_step_is_needed_while_something_that_it_frees_is_held(held, needed):
    words = {"title": "", "why": "", "targets": (), "commands": ()}
    actions = ("fadvise", "reclaim", "drop-caches", "swap-through", "swapoff")
    assert {each for each in actions if still_held([held], Step(id=each, action=each, **words))} == needed


def test_a_count_that_falls_by_itself_needs_nothing():
    plan = make_plan(situation(5000, fell=40, after_s=0.5))
    assert plan.steps == ()
    assert "40 went by themselves" in plan.summary


def test_a_few_without_a_page_are_normal():
    plan = make_plan(situation(20))
    assert plan.steps == ()
    assert "nothing to do" in plan.summary


def test_a_few_with_pages_can_be_freed_but_need_not():
    plan = make_plan(situation(13, parent(file=12_000)))
    assert ids(plan) == ["reclaim", "drop-caches"]
    assert "few are normal" in plan.summary
    assert "few are normal" not in make_plan(situation(500, parent(file=500))).summary


def test_no_zombies_no_steps():
    assert make_plan(situation(0)).steps == ()


def test_unknown_counts_still_have_a_plan():
    plan = make_plan(situation(None, parent(shmem=500)))
    assert plan.count is None
    assert plan.steps[0].frees_at_most == 500
    assert make_plan(situation(None)).steps == ()


def test_what_an_earlier_run_left_is_removed_first():
    plan = make_plan(situation(500, parent(shmem=500), leftovers=("the temporary swapfile /x/zombies.swap",)))
    assert ids(plan) == ["clean-up", "swap-through"]
    assert ids(make_plan(situation(0, leftovers=("the temporary swapfile /x/zombies.swap",)))) == ["clean-up"]


def test_reclaim_over_thousands_is_called_a_spike():
    assert not only(make_plan(situation(500, parent(file=500))), "reclaim").spike
    for zombies, seconds in ((5_000, 1.65), (20_000, 5.2), (68_000, 18.4)):
        step = only(make_plan(situation(zombies, parent(file=zombies))), "reclaim")
        assert step.spike
        assert step.cpu_seconds == pytest.approx(seconds)
        through = only(make_plan(situation(zombies, parent(shmem=zombies))), "swap-through")
        assert through.spike
        assert through.cpu_seconds >= seconds


def test_v2_counts_its_zombies_for_each_parent():
    parents = (
        parent("/a", version=2, dying=20_000, file=100_000),
        parent("/b", version=2, dying=0, file=100_000),
    )
    assert only(make_plan(situation(20_000, *parents)), "reclaim").cpu_seconds == pytest.approx(5.2)


@given(st.integers(0, 1_000_000), st.integers(0, 1_000_000))
def test_more_zombies_never_cost_less(one, other):
    low, high = sorted((one, other))
    assert 0 <= reclaim_seconds(low) <= reclaim_seconds(high)


@given(
    st.one_of(st.none(), st.integers(0, 100_000)),
    st.lists(
        st.builds(
            parent,
            st.sampled_from(["/", "/docker", "/kubepods"]),
            st.sampled_from([1, 2]),
            file=st.integers(0, 9000),
            shmem=st.integers(0, 9000),
            anon=st.integers(0, 9000),
            swap=st.integers(0, 9000),
            unevictable=st.integers(0, 9000),
        ),
        max_size=4,
    ),
)
def test_no_plan_promises_more_than_there_is_or_hides_a_spike(dying, parents):
    plan = make_plan(situation(dying, *parents))
    assert len(set(ids(plan))) == len(plan.steps)
    for step in plan.steps:
        assert dying is None or (step.frees_at_most or 0) <= dying
        assert step.spike == (step.cpu_seconds >= SPIKE_S)
        assert step.automatic or step.cpu_seconds == 0 or "can't be done now" in step.why


def test_what_frees_hardly_any_comes_last():
    """20,000 held by files in shared memory, and some dozen by cached files: reclaim and dropping caches would work for
    seconds, and cost the node its cache, for nothing."""
    held = parent("/kubepods/pod1", file=69, shmem=20_000)
    assert ids(make_plan(situation(20_073, held))) == ["swap-through", "reclaim", "drop-caches"]
    files = tuple(pinned(f"/shm/{number}", PinKind.SHMEM) for number in range(20_000))
    large = parent("/kubepods/pod1", file=90_000, shmem=20_000)
    named = situation(20_073, large, pins=(*files, pinned("/data/large", PinKind.FILE, 90_000)))
    assert ids(make_plan(named)) == ["swap-through", "fadvise", "reclaim", "drop-caches"]
    swap, reclaim, drop = make_plan(situation(20_073, held)).steps
    assert (swap.frees_at_most, reclaim.frees_at_most, drop.frees_at_most) == (20_000, 69, 69)


def test_mild_steps_that_free_many_stay_first():
    plan = make_plan(situation(5_000, parent(file=2_000, shmem=3_000)))
    assert ids(plan) == ["reclaim", "drop-caches", "swap-through"]


def test_where_v2_counts_zombies_a_parent_frees_no_more_than_it_has():
    """Much of a live parent's cache may be its own."""
    large, small = parent("/a", version=2, dying=3, file=90_000), parent("/b", version=2, dying=70, file=60)
    assert only(make_plan(situation(40_073, large, small)), "reclaim").frees_at_most == 63


def test_on_a_node_with_pods_a_swapfile_comes_with_a_warning():
    held = parent(shmem=20_000)
    plain, pods = (only(make_plan(situation(20_000, held, has_pods=pods)), "swap-through") for pods in (False, True))
    assert "failSwapOn" in pods.harm and "failSwapOn" not in plain.harm
