"""What a fix refuses to stop: by name, by evidence, and because others require it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.remedy.pretend_systemd import PretendSystemd

from exhume.control.managers import Controls
from exhume.control.unit_files import OwnFiles
from exhume.model.audit import Agent, Manager, Service
from exhume.model.remedy import Risk
from exhume.procfs.host import Host
from exhume.remedy.services.planner import Planner
from exhume.remedy.services.refusals import Surroundings, is_within, look_around, refusal, unit_refusal
from exhume.remedy.services.steps import Selection

PROTECTED = [
    "ssh.service",
    "sshd.service",
    "ssh.socket",
    "sshd@3-10.0.0.1:22-10.0.0.9:5.service",
    "NetworkManager.service",
    "networking.service",
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "dbus.service",
    "dbus.socket",
    "dbus-broker.service",
    "systemd-udevd.service",
    "systemd-journald.service",
    "systemd-logind.service",
    "docker.service",
    "docker.socket",
    "containerd.service",
    "crio.service",
    "kubelet.service",
    "k3s-agent.service",
    "snap.microk8s.daemon-kubelite.service",
    "getty@tty1.service",
    "user@1000.service",
    "multi-user.target",
    "system.slice",
    "init.scope",
    "session-3.scope",
    "data.mount",
    "swapfile.swap",
    "dev-sda.device",
]
# What only sounds like it.
ORDINARY = [
    "ecs.service",
    "amazon-ssm-agent.service",
    "dockerize.service",
    "sshguard.service",
    "networkmap.service",
    "kubelet-metrics.service",
    "systemd-exporter.service",
    "initialise.service",
    "docker-cleanup.timer",
    "containerd-report.service",
    "apt-daily.timer",
]


def unit(name: str, **known: object) -> Service:
    return Service(Manager.SYSTEMD, name, name, **known)


@pytest.mark.parametrize("name", PROTECTED)
def test_what_a_node_cannot_be_without_is_refused_with_the_reason(name):
    why = refusal(unit(name), Surroundings())
    assert name in why and len(why) > len(name) + 5


@pytest.mark.parametrize("name", ORDINARY)
def test_what_only_sounds_like_it_is_not(name):
    assert refusal(unit(name), Surroundings()) == ""


@pytest.mark.parametrize(
    "name",
    [
        "a b.service",
        "a/b.service",
        "../x.service",
        "x",
        "é.service",
        ".service",
        "@.service",
        "tmpl@.service",
        "a\n.service",
        "$(reboot).service",
        f"{'x' * 250}.service",
        "",
        "a.exe",
    ],
)
def test_names_that_systemd_would_not_take_are_refused(name):
    assert "no name" in refusal(unit(name), Surroundings())


@pytest.mark.parametrize(
    "name", ["-rf.service", "a\\x2db.service", "a@b@c.service", "a:b_c.timer", f"{'x' * 247}.service"]
)
def test_odd_names_that_systemd_takes_are_taken(name):
    assert refusal(unit(name), Surroundings()) == ""


@pytest.mark.parametrize(
    "command", ["/usr/bin/kubelet --config=/etc/k", "-/usr/sbin/sshd -D", "@/usr/bin/dockerd dockerd"]
)
def test_protected_programs_are_recognised_by_command(command):
    assert "runs" in refusal(unit("plum.service", command=command), Surroundings())
    assert refusal(unit("plum.service", command="/opt/run kubelet"), Surroundings()) == ""


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("/bin/sh -c 'exec /usr/sbin/sshd -D'", "sshd"),
        ("/usr/bin/env TERM=xterm /usr/sbin/sshd -D", "sshd"),
        ("/bin/bash -c 'sleep 1; exec kubelet'", "kubelet"),
        ("/usr/bin/nice -n -5 /opt/k3s/bin/k3s server", "k3s"),
        ("/usr/sbin/ip netns exec mgmt /usr/sbin/sshd -D", "sshd"),
    ],
)
def test_a_program_that_another_one_starts_is_seen(command, program):
    assert f"runs {program}" in refusal(unit("plum.service", command=command), Surroundings())


@pytest.mark.parametrize(
    "command",
    [
        "/bin/sh -c 'rm -rf /var/lib/containerd'",
        "/bin/sh -c 'systemctl is-active kubelet || reboot'",
        "/usr/bin/env MODE=init /opt/agent --like sshd",
        "/usr/bin/tool /usr/sbin/sshd",
    ],
)
def test_a_command_that_only_speaks_of_it_does_not_run_it(command):
    assert refusal(unit("plum.service", command=command), Surroundings()) == ""


def test_protected_by_running_program_or_ssh_port():
    home = "/system.slice/plum.service"
    within = unit("plum.service", command="/opt/start", cgroup=home)
    assert "sshd runs in plum.service" in refusal(within, Surroundings(programs=frozenset({(f"{home}/a", "sshd")})))
    assert refusal(within, Surroundings(programs=frozenset({("/system.slice/fig.service", "sshd")}))) == ""
    forked = frozenset({(home, "systemd"), (home, "(start)")})
    assert refusal(within, Surroundings(programs=forked)) == "", (
        "systemd forks, and the child is about to be the program"
    )
    assert "port 22" in refusal(within, Surroundings(doors=frozenset({home})))
    sockets = unit("plum.socket")
    assert "port 22" in refusal(sockets, Surroundings(), listens="/run/x 0.0.0.0:22")
    assert "port 22" in refusal(sockets, Surroundings(), listens="[::]:22")
    assert refusal(sockets, Surroundings(), listens="0.0.0.0:2222 /run/22") == ""


def test_a_unit_that_goes_by_a_protected_name_is_protected(tmp_path):
    units = {"corp.service": {"active": "active", "names": "corp.service sshd.service"}}
    # The bus starts many an ordinary service by a name like this.
    units["clock.service"] = {"active": "active", "names": "clock.service dbus-org.example.clock1.service"}
    steps, refused = plan(tmp_path, units, "corp.service")
    assert not steps and "goes by the name of sshd.service too" in refused[0]
    assert plan(tmp_path, units, "clock.service")[1] == []


def test_what_starts_a_protected_unit_is_protected(tmp_path):
    units = {"api.socket": {"active": "active", "triggers": "docker.service"}, "docker.service": {}}
    steps, refused = plan(tmp_path, units, "api.socket")
    assert not steps and "starts docker.service" in refused[0]


def test_the_plan_lists_wanting_units_and_unread_files(tmp_path):
    units = {"a.service": {"active": "failed", "wanted_by": "b.service multi-user.target", "needs_reload": "yes"}}
    (step,), _ = plan(tmp_path, units, "a.service")
    assert step.harm.startswith("b.service and multi-user.target want it, and start without it; files of a.service")


def test_an_entry_of_the_catalogue_protects():
    agent = Agent("x", "the proxy of the cluster", "it routes to services", protected=True)
    assert "proxy of the cluster" in refusal(unit("plum.service"), Surroundings(), agent)


def test_our_own_session_is_not_cut_off():
    around = Surroundings(frozenset({400, 300}), frozenset({"/system.slice/plum.service/work"}), 2222)
    assert "this very process" in refusal(unit("plum.service", cgroup="/system.slice/plum.service"), around)
    assert "session" in refusal(unit("pear.service", pid=300, cgroup="/system.slice/pear.service"), around)
    assert refusal(unit("fig.service", pid=301, cgroup="/system.slice/fig.service"), around) == ""
    assert refusal(unit("plu.service", cgroup="/system.slice/plum.servic"), around) == ""


def test_a_container_in_which_we_are_is_not_stopped():
    around = Surroundings(our_cgroups=frozenset({"/docker/ab"}))
    assert "this very process" in refusal(Service(Manager.DOCKER, "ab" * 32, "me", cgroup="/docker/ab"), around)


def test_protected_by_shims_and_by_listening_port():
    around = Surroundings(
        ssh_port=2222, way_in=frozenset({"/system.slice/a.service"}), shims=frozenset({"/s/b.service"})
    )
    assert "port 2222" in refusal(unit("a.service", cgroup="/system.slice/a.service"), around)
    assert "containerd-shim" in refusal(unit("b.service", cgroup="/s/b.service"), around)


def test_the_root_cgroup_protects_nothing():
    assert not is_within("/a/b", "/") and not is_within("/a/b", None) and not is_within("/ab", "/a")
    assert is_within("/a/b", "/a") and is_within("/a", "/a")


def test_own_processes_and_ssh_listener_are_found_in_proc():
    """A real process listens; a real child of it has the environment of an SSH session."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        script = (
            "from exhume.procfs.host import Host\n"
            "from exhume.remedy.services.refusals import look_around\n"
            "seen = look_around(Host()); print(sorted(seen.ours), seen.ssh_port, sorted(seen.way_in))"
        )
        environment = {**os.environ, "SSH_CONNECTION": f"10.0.0.9 50000 10.0.0.1 {port}"}
        said = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
    pids, rest = said.stdout.split("] ", 1)
    assert str(os.getpid()) in pids.strip("[").split(", ")
    assert rest.startswith(f"{port} ")
    mine = {line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()} - {"/"}
    assert all(repr(cgroup) in rest for cgroup in mine)


def test_another_nodes_processes_are_not_our_ancestors(tmp_path):
    (tmp_path / "77").mkdir()
    (tmp_path / "77/comm").write_text("containerd-shim-runc-v2\n")
    (tmp_path / "77/cgroup").write_text("0::/system.slice/boats.service\n")
    around = look_around(Host(proc=tmp_path))
    assert (around.ours, around.our_cgroups, around.shims) == (
        frozenset(),
        frozenset(),
        {"/system.slice/boats.service"},
    )


def test_programs_are_known_by_file_and_comm_outside_of_containers(tmp_path):
    """As the kernel shows it: the unit's script became sshd; a container has one of its own."""

    def process(pid: int, cgroup: str, exe: str, comm: str, space: str = "pid:[1]") -> None:
        home = tmp_path / str(pid)
        (home / "ns").mkdir(parents=True)
        (home / "ns/pid").symlink_to(space)
        (home / "exe").symlink_to(exe)
        (home / "comm").write_text(f"{comm}\n")
        (home / "cgroup").write_text(f"1:name=systemd:{cgroup}\n")

    process(1, "/box/init.scope", "/usr/lib/systemd/systemd", "systemd")
    process(40, "/box/system.slice/door.service", "/opt/accessd (deleted)", "sshd")
    process(41, "/box/system.slice/cage.service/payload", "/usr/sbin/sshd", "sshd", "pid:[2]")
    around = look_around(Host(proc=tmp_path))
    assert ("/system.slice/door.service", "accessd") in around.programs
    assert "sshd runs in" in refusal(unit("door.service", cgroup="/system.slice/door.service"), around)
    assert refusal(unit("cage.service", cgroup="/system.slice/cage.service"), around) == ""


def plan(
    tmp_path: Path, units: dict[str, dict[str, str]], name: str, *, force: bool = False, weight: int | None = None
):
    systemd = PretendSystemd(tmp_path / "root", units)
    files = OwnFiles(lambda path: tmp_path / "root" / path.lstrip("/"))
    planner = Planner(Controls(systemd), files, Surroundings(), "20260101-000000-abcd", "now", force, (), weight)
    return planner.steps([Selection(unit(name))])


def test_lowering_the_cpu_weight_stops_nothing(tmp_path):
    units = {"a.service": {"active": "active", "required_by": "b.service"}, "b.service": {"active": "active"}}
    (step,), refused = plan(tmp_path, units, "a.service", weight=25)
    assert refused == []
    assert (step.action, step.targets, step.params) == ("cpu-weight", ("a.service",), (("weight", "25"),))
    assert step.commands == ("systemctl set-property --runtime -- a.service CPUWeight=25",)
    assert step.undo_commands == ("systemctl set-property --runtime -- a.service CPUWeight=",)
    # One fifth of a core against one neighbour of weight 100.
    assert (step.risk, step.dependents, "20%" in step.harm) == (Risk.LOW, (), True)
    assert {effect.expected for effect in step.effects} == {"stay"}


@pytest.mark.parametrize(("own", "weight", "planned"), [("", 100, 0), ("", 99, 1), ("50", 50, 0), ("500", 200, 1)])
def test_a_cpu_weight_is_only_lowered(tmp_path, own, weight, planned):
    steps, refused = plan(tmp_path, {"a.service": {"active": "active", "cpu_weight": own}}, "a.service", weight=weight)
    assert (len(steps), len(refused)) == (planned, 1 - planned)
    assert [step.undo_commands[0].partition("CPUWeight=")[2] for step in steps] == [own] * planned


@pytest.mark.parametrize("name", ["sshd.service", "containerd.service", "a.timer", "missing.service"])
def test_the_cpu_weight_of_what_is_protected_or_runs_nothing_is_left(tmp_path, name):
    units = {each: {"active": "active"} for each in ("sshd.service", "containerd.service", "a.timer")}
    steps, refused = plan(tmp_path, units, name, weight=10)
    assert steps == [] and len(refused) == 1


def test_the_cpu_shares_of_a_container_are_left_to_a_person(tmp_path):
    files = OwnFiles(lambda path: tmp_path / path.lstrip("/"))
    planner = Planner(Controls(), files, Surroundings(), "20260101-000000-abcd", "now", cpu_weight=25)
    number = "ab12" * 16
    (step, of_pod), refused = planner.steps(
        [
            Selection(Service(Manager.DOCKER, number, "busy")),
            Selection(Service(Manager.CRI, number, "busy", pod="shop/cart")),
        ]
    )
    assert refused == [] and not step.automatic and not of_pod.automatic
    assert step.commands == (f"docker update --cpu-shares 256 {number}",)
    assert of_pod.commands == ()


def test_what_others_that_run_require_needs_force(tmp_path):
    units = {
        "a.service": {"active": "active", "required_by": "b.service idle.service"},
        "b.service": {"active": "active", "required_by": "c.service"},
        "c.service": {"active": "active"},
        "idle.service": {"active": "inactive"},
    }
    steps, refused = plan(tmp_path, units, "a.service")
    assert steps == []
    assert refused == [
        "b.service, c.service require a.service and would be stopped with it; --force-required does it all the same"
    ]
    steps, refused = plan(tmp_path, units, "a.service", force=True)
    assert refused == [] and steps[0].dependents == ("b.service", "c.service")
    steps, refused = plan(tmp_path, units, "c.service")
    assert refused == [] and [step.id for step in steps] == ["stop:c.service", "hold-back:c.service"]


def test_force_does_not_reach_what_is_protected(tmp_path):
    units = {"a.service": {"active": "active", "required_by": "sshd.service"}, "sshd.service": {"active": "active"}}
    steps, refused = plan(tmp_path, units, "a.service", force=True)
    assert steps == [] and "sshd.service is the way into this node" in refused[0]


def test_a_trigger_that_is_protected_is_not_held_back(tmp_path):
    units = {"a.service": {"active": "active", "triggered_by": "docker.socket"}, "docker.socket": {"active": "active"}}
    steps, refused = plan(tmp_path, units, "a.service")
    assert steps == [] and "docker.socket" in refused[0]


def test_a_missing_or_held_unit_is_refused(tmp_path):
    assert plan(tmp_path, {}, "no.service")[1] == ["there is no unit no.service on this node"]
    place = tmp_path / "root/etc/systemd/system/a.service.d"
    place.mkdir(parents=True)
    units = {"a.service": {"active": "failed"}}
    (place / "90-exhume.conf").write_text("# Made by exhume fix, 20260101-000000-aaaa, at noon; ...\n")
    assert "held back already by fix 20260101-000000-aaaa" in plan(tmp_path, units, "a.service")[1][0]
    (place / "90-exhume.conf").write_text("[Unit]\n")
    assert "is there already" in plan(tmp_path, units, "a.service")[1][0]
    (place / "90-exhume.conf").unlink()
    place.rmdir()
    place.symlink_to(tmp_path)
    assert "not a plain directory" in plan(tmp_path, units, "a.service")[1][0]


def test_what_failed_already_is_only_held_back(tmp_path):
    steps, _ = plan(tmp_path, {"a.service": {"active": "failed"}}, "a.service")
    assert [step.id for step in steps] == ["hold-back:a.service"]


def test_refuse_manual_stop_is_refused_in_the_plan(tmp_path):
    units = {"odd.service": {"active": "active", "refuses_stop": "yes"}}
    steps, refused = plan(tmp_path, units, "odd.service")
    assert not steps and "RefuseManualStop=yes" in refused[0]
    # Where it does not run there is nothing to stop.
    units["odd.service"]["active"] = "failed"
    steps, refused = plan(tmp_path, units, "odd.service")
    assert [step.action for step in steps] == ["hold-units"] and not refused


def test_what_a_unit_upholds_needs_force(tmp_path):
    units = {
        "held.service": {"active": "active", "upheld_by": "boss.service idle.service"},
        "boss.service": {"active": "active"},
        "idle.service": {},
    }
    steps, refused = plan(tmp_path, units, "held.service")
    assert not steps and "boss.service starts held.service again" in refused[0] and "idle" not in refused[0]
    assert plan(tmp_path, units, "held.service", force=True)[1] == []


def test_kinds_that_others_stand_on_are_refused_by_name_alone():
    assert "is a slice" in unit_refusal("user.slice")


def test_a_drop_in_of_others_that_takes_conditions_away_calls_for_a_mask(tmp_path):
    place = tmp_path / "root/etc/systemd/system/a.service.d"
    place.mkdir(parents=True)
    path = "/etc/systemd/system/a.service.d/95-theirs.conf"
    units = {"a.service": {"active": "active", "drop_ins": f"{path} sha256:00"}}
    (place / "95-theirs.conf").write_text("[Unit]\nConditionPathExists=\n")
    steps, _ = plan(tmp_path, units, "a.service")
    assert [step.id for step in steps] == ["stop:a.service", "mask:a.service"] and path in steps[1].why
    (place.parent / "a.service").write_text("[Service]\n")
    assert plan(tmp_path, units, "a.service")[0] == [] and "no mask fits" in plan(tmp_path, units, "a.service")[1][0]
    (place / "95-theirs.conf").write_text("[Unit]\nConditionPathExists=/x\n")
    assert plan(tmp_path, units, "a.service")[0][1].id == "hold-back:a.service"


def test_what_was_made_at_run_time_is_only_stopped_and_that_is_final(tmp_path):
    units = {"run-r1.service": {"active": "active", "fragment": "/run/systemd/transient/run-r1.service sha256:00"}}
    steps, refused = plan(tmp_path, units, "run-r1.service")
    assert refused == [] and [(step.id, step.reversible) for step in steps] == [("stop:run-r1.service", False)]
