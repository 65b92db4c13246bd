"""Which program a thread was running, and what it was called: never another's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.collect.perf.fake_processes import FakeProcesses, path_at
from tests.collect.perf.record_builder import comm, exits, fork, mmap2

from exhume.collect.perf import tasks as tasks_module
from exhume.collect.perf.records import walk
from exhume.collect.perf.tasks import EXITING, FOREIGN, Tasks
from exhume.collect.symbols.mappings import AddressSpace
from exhume.collect.symbols.owners import Owners
from exhume.procfs.host import Host


@pytest.fixture
def node(tmp_path) -> FakeProcesses:
    return FakeProcesses(tmp_path)


def loads(pid: int, name: str, time: int, *, start: int = 0x1000) -> bytes:
    """An exec: the name changes, then the program is mapped."""
    return comm(pid, name, time, execs=True) + mmap2(pid, start, 0x1000, f"/bin/{name}", time + 1)


def test_a_process_that_was_there_first_is_known_from_proc(node) -> None:
    node.lives(10, "nginx", "/usr/sbin/nginx", tids={11: "worker"})
    assert node.program(10, 5) == "/usr/sbin/nginx"
    assert node.program(10, 5, address=0x2000) is None
    assert node.name(10, 5) == "nginx"
    assert node.name(10, 5, tid=11) == "worker"


def test_a_fork_inherits_program_and_name(node) -> None:
    node.lives(10, "postgres", "/bin/postgres")
    assert node.program(10, 1) == "/bin/postgres"
    node.tick(fork(20, 10, 100), sampled=(20,))
    assert node.program(20, 101) == "/bin/postgres"
    assert node.name(20, 101) == "postgres"
    assert node.tasks.parent(20) == 10


def test_a_fork_means_the_same_as_its_parent_until_either_maps_something(node) -> None:
    node.lives(10, "python", "/bin/python")
    node.program(10, 1)
    node.tick(fork(20, 10, 100), sampled=(10, 20))
    parent, child = node.tasks.image_at(10, 101), node.tasks.image_at(20, 101)
    assert parent.salt == child.salt
    node.over()
    node.tick(mmap2(20, 0x9000, 0x1000, "/lib/extension.so", 200), sampled=(10, 20))
    assert node.tasks.image_at(20, 201).salt != node.tasks.image_at(10, 201).salt
    assert node.program(20, 201, 0x9000) == "/lib/extension.so"
    assert node.program(10, 201, 0x9000) is None


def test_an_exec_in_a_tick_starts_a_new_entry(node) -> None:
    node.lives(10, "bash", "/bin/bash")
    node.program(10, 1)
    node.tick(fork(20, 10, 100) + loads(20, "grep", 200), sampled=(10, 20))
    assert node.tasks.changed_image(20)
    assert node.tasks.changed_name(20)
    assert (node.program(20, 150), node.name(20, 150)) == ("/bin/bash", "bash")
    assert (node.program(20, 250), node.name(20, 250)) == ("/bin/grep", "grep")
    assert (node.program(10, 250), node.name(10, 250)) == ("/bin/bash", "bash")
    node.over()
    assert not node.tasks.changed_image(20)
    assert (node.program(20, 150), node.name(20, 150)) == ("/bin/grep", "grep")
    assert set(node.tasks.take_began()) == {20}


def test_two_execs_in_one_tick(node) -> None:
    node.lives(10, "init", "/bin/init")
    node.program(10, 1)
    records = fork(20, 10, 100) + loads(20, "sh", 200) + loads(20, "env", 300, start=0x5000)
    node.tick(records + loads(20, "perl", 400), sampled=(20,))
    assert [node.name(20, time) for time in (100, 250, 350, 450)] == ["init", "sh", "env", "perl"]
    assert node.program(20, 250) == "/bin/sh"
    assert node.program(20, 350) is None
    assert node.program(20, 350, 0x5000) == "/bin/env"
    assert node.program(20, 450) == "/bin/perl"


def test_a_child_of_an_unsampled_process_is_read_from_proc(node) -> None:
    node.lives(20, "worker", "/bin/worker")
    node.tick(fork(20, 10, 100))
    node.over()
    assert node.program(20, 150) == "/bin/worker"
    assert node.name(20, 150) == "worker"


def test_a_child_that_is_gone_is_known_by_its_parent(node) -> None:
    node.lives(10, "sh", "/bin/sh")
    node.tick(fork(20, 10, 100) + exits(20, 200), sampled=(20,))
    assert node.program(20, 150) == "/bin/sh"
    assert node.name(20, 150) == "sh"


def test_a_child_that_is_gone_is_not_taken_for_what_its_parent_became(node) -> None:
    node.lives(10, "sh", "/bin/sh")
    node.tick(fork(20, 10, 100))
    node.over()
    node.lives(10, "server", "/bin/server")
    node.tick(loads(10, "server", 300))
    node.over()
    node.tick(exits(20, 500), sampled=(20,))
    assert node.program(20, 450) is None
    assert node.program(10, 450) == "/bin/server"


def test_a_child_is_not_taken_for_what_its_parent_mapped_later(node) -> None:
    """Both load something at the same address after the fork; only the child's own maps could tell, and it is gone."""
    node.lives(10, "sh", "/bin/sh")
    node.tick(fork(20, 10, 100) + mmap2(20, 0x9000, 0x1000, "/lib/mine.so", 150))
    node.over()
    node.tick(mmap2(10, 0x9000, 0x1000, "/lib/other.so", 300))
    node.over()
    node.tick(exits(20, 500), sampled=(20,))
    assert node.program(20, 450, 0x9000) in (None, "/lib/mine.so")


def test_relatives_that_share_an_image_are_read_once(node) -> None:
    node.lives(10, "sh", "/bin/sh")
    node.tick(fork(20, 10, 100) + fork(30, 20, 110), sampled=(10, 20, 30))
    first = node.tasks.image_at(10, 120)
    node.is_gone(10)
    for pid in (20, 30):
        assert path_at(node.tasks.image_at(pid, 120), 0x1000) == "/bin/sh"
        assert node.tasks.image_at(pid, 120).salt == first.salt


def test_the_daughter_of_a_daughter_that_is_gone_keeps_her_own_name(node) -> None:
    """A daemon forks twice, and the one between is gone before anybody looks."""
    node.lives(30, "daemon", "/bin/daemon")
    node.tick(fork(20, 10, 100) + fork(30, 20, 110) + exits(20, 120))
    node.over()
    assert node.name(30, 150) == "daemon"
    assert node.program(30, 150) == "/bin/daemon"


def test_a_process_that_ended_before_it_was_read_is_unknown(node) -> None:
    node.tick(exits(10, 100), sampled=(10,))
    assert node.program(10, 50) is None
    assert node.name(10, 50) == ":10"
    assert node.name(10, 50, tid=11) == ":10"


def test_ended_processes_are_not_read_from_proc(node) -> None:
    """By the time of the drain its number may be another's."""
    node.lives(10, "newcomer", "/bin/newcomer")
    node.tick(exits(10, 100), sampled=(10,))
    assert node.program(10, 50) is None
    assert node.name(10, 50) == ":10"


def test_before_an_exec_an_unread_process_is_unknown(node) -> None:
    node.lives(10, "after", "/bin/after")
    node.tick(loads(10, "after", 200), sampled=(10,))
    assert (node.program(10, 100), node.name(10, 100)) == (None, ":10")
    assert (node.program(10, 300), node.name(10, 300)) == ("/bin/after", "after")


def test_a_child_does_not_inherit_the_name_that_its_parent_took_later(node) -> None:
    node.lives(10, "after", "/bin/after")
    node.tick(fork(20, 10, 100) + exits(20, 150) + comm(10, "after", 200), sampled=(20,))
    assert node.name(20, 120) == ":20"
    assert node.name(10, 250) == "after"


def test_a_number_given_to_another_process_within_a_tick(node) -> None:
    node.lives(10, "sh", "/bin/sh")
    node.program(10, 1)
    node.tick(
        fork(20, 10, 100) + loads(20, "first", 110) + exits(20, 200) + fork(20, 10, 300),
        mmap2(20, 0x9000, 0x1000, "/lib/second.so", 310),
        sampled=(10, 20),
    )
    assert (node.program(20, 150), node.name(20, 150)) == ("/bin/first", "first")
    assert (node.program(20, 350), node.name(20, 350)) == ("/bin/sh", "sh")
    assert node.program(20, 150, 0x9000) is None
    assert node.program(20, 350, 0x9000) == "/lib/second.so"
    assert 20 not in node.tasks.gone
    node.over()
    assert (node.program(20, 400), node.name(20, 400)) == ("/bin/sh", "sh")


def test_a_number_given_to_another_process_later(node) -> None:
    node.lives(10, "sh", "/bin/sh")
    node.program(10, 1)
    node.tick(fork(20, 10, 100) + loads(20, "first", 110), sampled=(20,))
    assert node.program(20, 150) == "/bin/first"
    node.over()
    node.tick(exits(20, 200))
    node.over()
    node.lives(20, "second", "/bin/second")
    node.tick()
    assert (node.program(20, 900), node.name(20, 900)) == ("/bin/second", "second")


def test_an_exec_by_another_thread_than_the_first_is_no_end(node) -> None:
    """The kernel ends the first thread; the one that calls exec takes its number. Go programs do this."""
    node.lives(10, "runc", "/bin/runc")
    node.program(10, 1)
    node.name(10, 1)
    node.tick(exits(10, 100), loads(10, "nginx", 110))
    assert 10 not in node.tasks.gone
    assert (node.program(10, 90), node.name(10, 90)) == ("/bin/runc", "runc")
    assert (node.program(10, 150), node.name(10, 150)) == ("/bin/nginx", "nginx")
    node.over()
    assert (node.program(10, 200), node.name(10, 200)) == ("/bin/nginx", "nginx")
    assert node.tasks.take_began() == [10]


def test_an_exec_before_the_end_does_not_bring_it_back(node) -> None:
    node.lives(10, "sh", "/bin/sh")
    node.tick(fork(20, 10, 50) + loads(20, "true", 100) + exits(20, 200), sampled=(20,))
    assert node.tasks.gone == {20}
    assert node.name(20, 150) == "true"
    node.over()
    assert node.program(20, 300) is None


def test_threads_have_names_of_their_own(node) -> None:
    node.lives(10, "java", "/bin/java")
    node.name(10, 1)
    node.tick(
        fork(10, 10, 100, tid=11, parent_tid=10) + comm(10, "GC Thread#0", 150, tid=11) + fork(10, 10, 160, tid=12),
        sampled=(10,),
    )
    assert node.name(10, 120, tid=11) == "java"
    assert node.name(10, 200, tid=11) == "GC Thread#0"
    assert node.name(10, 200, tid=12) == "java"
    assert node.name(10, 200) == "java"
    assert not node.tasks.changed_image(10)
    assert node.tasks.parent(10) is None


def test_the_idle_task_and_tasks_that_are_being_reaped(node) -> None:
    assert node.name(0, 1) == "swapper"
    node.tick(sampled=(-1, 0))
    assert node.name(-1, 1, tid=-1) == EXITING


def test_a_name_that_is_not_text_is_kept_readable(node) -> None:
    node.tick(comm(10, b"caf\xe9\n", 100), sampled=(10,))
    assert node.name(10, 200) == "caf\ufffd\n"


def test_lost_records_make_every_process_be_read_again(node) -> None:
    node.lives(10, "old", "/bin/old")
    assert (node.program(10, 1), node.name(10, 1)) == ("/bin/old", "old")
    node.lives(10, "new", "/bin/new")
    assert (node.program(10, 2), node.name(10, 2)) == ("/bin/old", "old")
    node.tasks.forget()
    assert (node.program(10, 3), node.name(10, 3)) == ("/bin/new", "new")


def test_what_happened_on_several_cores_goes_by_time(node) -> None:
    """The child runs, execs and maps on another core than the one that forked it."""
    node.lives(10, "sh", "/bin/sh")
    node.program(10, 1)
    second = mmap2(20, 0x3000, 0x1000, "/lib/libc.so", 240) + comm(20, "renamed", 260)
    first = comm(20, "cat", 200, execs=True) + mmap2(20, 0x1000, 0x1000, "/bin/cat", 210)
    node.tick(second, first, fork(20, 10, 100), sampled=(20,))
    assert [node.name(20, time) for time in (150, 230, 270)] == ["sh", "cat", "renamed"]
    assert [node.program(20, time) for time in (150, 230)] == ["/bin/sh", "/bin/cat"]
    assert node.program(20, 250, 0x3000) == "/lib/libc.so"


def test_a_run_of_mappings_ends_where_its_process_forks(node) -> None:
    node.lives(10, "sh", "/bin/sh")
    node.program(10, 1)
    node.tick(
        mmap2(10, 0x5000, 0x1000, "/lib/before.so", 100),
        fork(20, 10, 150),
        mmap2(10, 0x7000, 0x1000, "/lib/after.so", 200),
        sampled=(10, 20),
    )
    assert node.program(20, 300, 0x5000) == "/lib/before.so"
    assert node.program(20, 300, 0x7000) is None
    assert node.program(10, 300, 0x7000) == "/lib/after.so"


def test_a_mapping_over_another_replaces_it(node) -> None:
    node.lives(10, "sh", "/bin/sh")
    node.program(10, 1)
    node.tick(
        mmap2(10, 0x5000, 0x3000, "/lib/old.so", 100, inode=1) + mmap2(10, 0x6000, 0x1000, "/lib/new.so", 200, inode=2),
        sampled=(10,),
    )
    found = [node.program(10, 300, address) for address in (0x5000, 0x6000, 0x7000, 0x8000)]
    assert found == ["/lib/old.so", "/lib/new.so", "/lib/old.so", None]


programs = st.sampled_from(["a", "b", "c"])
steps = st.lists(
    st.tuples(st.sampled_from(["fork", "exec", "exit", "map", "rename", "tick"]), st.integers(0, 7), programs),
    max_size=60,
)


@given(steps, st.data())
def test_never_another_program_or_name(tmp_path_factory, history, data) -> None:
    """Any history of forks, execs, mappings and ends, written into any of three rings: what is reported any moment is
    what was, or nothing."""
    node = FakeProcesses(tmp_path_factory.mktemp("proc"))
    node.lives(100, "root", "/bin/root")
    alive = {100: ("/bin/root", "root")}
    rings: list[list[bytes]] = [[], [], []]
    moments: list[tuple[int, int, str, str]] = []
    next_pid, time = 101, 1000

    def write(*records: bytes) -> None:
        rings[data.draw(st.integers(0, 2))].extend(records)

    def end_tick() -> None:
        node.tick(*(b"".join(ring) for ring in rings), sampled=tuple({pid for pid, *_ in moments}))
        for pid, at, program, name in moments:
            assert node.program(pid, at) in (program, None), history
            assert node.program(pid, at, 0x100_000) in (None, "/lib/a", "/lib/b", "/lib/c")
            assert node.name(pid, at) in (name, f":{pid}"), history
        node.over()
        moments.clear()
        for ring in rings:
            ring.clear()

    for action, which, label in history:
        time += 100
        pid = sorted(alive)[which % len(alive)]
        program, name = alive[pid]
        if action == "fork":
            write(fork(next_pid, pid, time))
            alive[next_pid] = (program, name)
            node.lives(next_pid, name, program)
            next_pid += 1
        elif action == "exec":
            write(comm(pid, label, time, execs=True), mmap2(pid, 0x1000, 0x1000, f"/bin/{label}", time + 1))
            alive[pid] = (f"/bin/{label}", label)
            node.lives(pid, label, f"/bin/{label}")
        elif action == "map":
            write(mmap2(pid, 0x100_000, 0x1000, f"/lib/{label}", time))
        elif action == "rename":
            write(comm(pid, label, time))
            alive[pid] = (program, label)
            node.lives(pid, label, program)
        elif action == "exit" and len(alive) > 1:
            write(exits(pid, time))
            node.is_gone(pid)
            del alive[pid]
        elif action == "tick":
            end_tick()
        moments.extend((sampled, time + 50, *alive[sampled]) for sampled in sorted(alive)[: which % 3])
    end_tick()


def test_a_process_that_maps_too_much_is_bounded_and_counted(node) -> None:
    """Those beyond what a tick or a process may have are left out; another process is not affected."""
    node.lives(10, "mapper", "/bin/mapper")
    node.lives(20, "other", "/bin/other")
    assert node.program(10, 1) == "/bin/mapper" and node.program(20, 1) == "/bin/other"
    made = b"".join(mmap2(10, 0x100000 + i * 0x2000, 0x1000, f"/lib/{i}", 100 + i) for i in range(2100))
    node.tick(made + mmap2(20, 0x9000, 0x1000, "/lib/extension.so", 5000), sampled=(10, 20))
    assert node.tasks.take_skipped() == ({10: 2100 - 2048}, {})
    assert node.tasks.take_skipped() == ({}, {})
    assert node.program(10, 9000, 0x100000) == "/lib/0"
    assert node.program(20, 9000, 0x9000) == "/lib/extension.so"


def test_a_process_that_is_full_is_read_from_proc_again(node) -> None:
    node.lives(10, "jit", "/bin/jit")
    node.program(10, 1)
    at = 0x100000
    for tick in range(1, 6):
        made = b"".join(mmap2(10, at + i * 0x2000, 0x1000, "/memfd:code", tick * 10_000 + i) for i in range(2000))
        at += 2000 * 0x2000
        node.tick(made, sampled=(10,))
        last = node.program(10, tick * 10_000 + 9000, at - 0x2000)
        node.over()
        # The fifth is more than a process may have: what is mapped now is what /proc says.
        assert last == ("/memfd:code" if tick < 5 else None)
    assert sum(node.tasks.take_skipped()[0].values()) == 2000 * 5 + 1 - 8192
    assert node.program(10, 90_000) == "/bin/jit"


def test_mappings_of_many_processes_of_one_cgroup_leave_room_for_those_of_another(node, monkeypatch) -> None:
    """They end at once: what they do counts for the one that started them."""
    monkeypatch.setattr(tasks_module, "_MAX_OF_PROCESS", 10)
    monkeypatch.setattr(tasks_module, "_MAX_OF_TICK", 50)
    for pid, cgroup in ((1, "/attack.service"), (20, "/victim.service")):
        node.lives(pid, "x", "/bin/x")
        home = node.host.proc / str(pid)
        (home / "status").write_text("Name:\tx\nUid:\t1000\t1000\t1000\t1000\n")
        (home / "cgroup").write_text(f"0::{cgroup}\n")
    made = b""
    for pid in range(100, 140):
        made += fork(pid, 1, pid)
        made += b"".join(mmap2(pid, 0x1000 * i, 0x1000, f"/lib/{pid}", pid + 1) for i in range(1, 6))
    made += b"".join(mmap2(20, 0x1000 * i, 0x1000, "/lib/victim", 500) for i in range(1, 9))
    node.tick(made, sampled=(20, *range(100, 140)))
    skipped, excess = node.tasks.take_skipped()
    assert skipped == {}
    assert {owner.cgroup: count for owner, count in excess.items()} == {"/attack.service": 200 + 8 - 50}


def test_too_many_names_do_not_make_programs_be_read_again(node, monkeypatch) -> None:
    monkeypatch.setattr(tasks_module, "NAMES_KEPT", 5)
    node.lives(10, "app", "/bin/app")
    node.program(10, 1)
    image = node.tasks.image_at(10, 1)
    node.tick(b"".join(comm(10, f"thread{tid}", tid, tid=tid) for tid in range(11, 31)), sampled=(10,))
    node.over()
    assert node.tasks.image_at(10, 100) is image


def test_processes_outside_of_the_pid_namespace_leave_no_name(node) -> None:
    """All of them have number 0, or -1 at their end: the last exec must not name the others."""
    foreign = fork(0, 0, 90) + loads(0, "true", 100) + exits(0xFFFFFFFF, 120)
    records = walk(foreign + loads(10, "own", 110)).without_foreign_tasks()
    assert sorted(records.low(records.starts).tolist()) == [10, 10]
    tasks = Tasks(node.host, foreign=True)
    tasks.apply([records], {0, 10})
    assert (tasks.name_at(0, 0, 200), tasks.name_at(10, 10, 200)) == (FOREIGN, "own")
    assert tasks.image_at(0, 200) is None


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6), st.sampled_from(["/a", "/b", "/" + 300 * "c"]))),
        min_size=1,
        max_size=3,
    )
)
def test_a_program_loaded_at_once_is_the_same_as_mapping_by_mapping(programs) -> None:
    ring, mapped = b"", {}
    for pid, maps in enumerate(programs, 100):
        ring += comm(pid, "x", pid, execs=True)
        for place, (page, pages, path) in enumerate(maps):
            ring += mmap2(pid, page << 12, pages << 12, path, pid + place + 1)
        mapped[pid] = maps
    records = walk(ring)
    runs = tasks_module.MapRuns(Owners(Host())).decode([(records, records.starts)])
    assert {run.pid: len(run.mappings) for run in runs} == {pid: len(maps) for pid, maps in mapped.items() if maps}
    for run in runs:
        step_by_step, at_once = AddressSpace(run.pid), AddressSpace(run.pid)
        step_by_step.add(run.mappings)
        layout = run.layout()
        if layout is None or not at_once.load(layout):
            at_once.add(run.mappings)
        assert at_once.layout.mappings() == step_by_step.layout.mappings()
        assert at_once.layout.numbers == step_by_step.layout.numbers


def test_what_is_mapped_already_is_never_replaced_at_once() -> None:
    records = walk(mmap2(10, 0x1000, 0x1000, "/bin/a", 1))
    (run,) = tasks_module.MapRuns(Owners(Host())).decode([(records, records.starts)])
    layout = run.layout()
    assert layout is not None
    space = AddressSpace(10)
    assert space.load(layout)
    assert not space.load(layout)
    assert not space.fork(20).load(layout)
