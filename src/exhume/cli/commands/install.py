"""Install the recorder and the page as systemd services: hardened, with a watchdog, started at boot.

Recordings go to /var/lib/exhume; settings come from /etc/default/exhume. Run it again after an upgrade.
"""

import os
import re
import stat
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from exhume import __file__ as package_file
from exhume.cli import exit_codes
from exhume.cli.args import option
from exhume.cli.terminal import say
from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.bus import BusError
from exhume.control.installation import (
    ACCOUNT,
    ALLOWED_ADDRESSES,
    DROP_INS,
    InstallTools,
    Outcome,
    Plan,
    hold_installation,
    install,
    plan_for,
)
from exhume.control.systemd import SystemdControl
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.isolation import INTERPRETER, isolated_python, only_root_writes
from exhume.model.settings import METRICS, OTLP, PUSH, S3_ENDPOINT, WEBHOOK, Setting, is_loopback

# Services don't see these (ProtectHome=).
_HOMES = ("/home", "/root", "/run/user")
# What needs no quoting in a unit file.
_PLAIN = re.compile(r"[A-Za-z0-9_./+,:@-]+")
# Where services get their settings from, and those that lead to other machines.
_DEFAULTS = Path("/etc/default/exhume")
_REMOTE: tuple[Setting[Any], ...] = (WEBHOOK, OTLP, PUSH, S3_ENDPOINT, METRICS)
_ALLOW = "IPAddressAllow="
_ELSEWHERE = "install exhume below /opt or /usr/local, for example with PIPX_HOME=/opt/pipx pipx install exhume"


def add_options(parser: ArgumentParser) -> None:
    option(parser, "--dry-run", "Print what would be written and started; change nothing.")
    option(parser, "--no-page", "Install the recorder alone.")
    option(
        parser,
        "--allow-address ADDR",
        "Let the recorder talk to this address or network beyond loopback, such as 192.0.2.7 or 10.1.0.0/16: a webhook,"
        " a hub, a collector, their name server; may be repeated.",
        action="append",
        default=[],
    )


def run(options: Namespace) -> int:
    program = program_command()
    allowed = [_network(each) for each in options.allow_address]
    plan = plan_for(" ".join(program), page=not options.no_page, last_capability=_last_capability(), allowed=allowed)
    for warning in denied_settings(_DEFAULTS, Path(DROP_INS), allowed):
        say(f"exhume: {warning}")
    if options.dry_run:
        _print_plan(plan)
        return exit_codes.OK
    refuse_without_root("install")
    refuse_unsafe_program(page=not options.no_page)
    with install_tools() as tools, hold_installation() as journal:
        outcome = install(plan, journal, tools)
    report(outcome, "installed already: nothing to do")
    say("next: exhume health --dir /var/lib/exhume")
    return exit_codes.ERROR if outcome.left else exit_codes.OK


def refuse_without_root(command: str) -> None:
    if os.geteuid() != 0:
        raise UsageError(f"exhume {command} changes services of the whole node; run it as root, for example with sudo")


@contextmanager
def install_tools() -> Iterator[InstallTools]:
    """systemd of this node. Raises ExhumeError where there is none."""
    if not Path("/run/systemd/system").is_dir():
        raise ExhumeError(
            "systemd does not run here; start exhume record with the service manager of this node instead"
        )
    try:
        units = SystemdControl(NodeRoot())
    except BusError as error:
        raise ExhumeError(f"systemd can't be reached: {error}") from None
    with units:
        yield InstallTools(units)


def program_command() -> list[str]:
    """The command that starts this program: its script next to the interpreter, else the module."""
    script = Path(sys.argv[0]).absolute()
    if script.name == "exhume" and script.parent == Path(INTERPRETER).parent and script.is_file():
        command = [os.fspath(script)]
    else:
        command = isolated_python("exhume.cli.main")
    for part in command:
        if not _PLAIN.fullmatch(part):
            raise UsageError(f"{part!r} can't be written into a unit file; {_ELSEWHERE}")
    return command


def refuse_unsafe_program(*, page: bool) -> None:
    """Raise UsageError where services can't see the program, or where another user than root could change it."""
    parts = [Path(INTERPRETER), Path(INTERPRETER).resolve(), Path(package_file).resolve(), Path(os.__file__).resolve()]
    for part in parts:
        if any(part.is_relative_to(home) for home in _HOMES):
            raise UsageError(f"{part} is in a home directory, which services don't see; {_ELSEWHERE}")
        if not only_root_writes(part.parent):
            raise UsageError(f"{part} can be changed by another user than root; {_ELSEWHERE}")
        if page and not _everyone_reads(part):
            raise UsageError(
                f"the user {ACCOUNT} can't read {part}; {_ELSEWHERE}, or leave the page out with --no-page"
            )


def _network(text: str) -> str:
    """An address or network as systemd takes it. Raises UsageError."""
    import ipaddress

    try:
        if "%" in text:
            # An interface behind an address: in a unit file the sign begins a specifier.
            raise ValueError
        return str(ipaddress.ip_network(text, strict=False)) if "/" in text else str(ipaddress.ip_address(text))
    except ValueError:
        example = "write a number such as 192.0.2.7, 10.1.0.0/16 or 2001:db8::7 (getent ahosts NAME)"
        raise UsageError(f"--allow-address: {text!r} is not an address or network: {example}") from None


def denied_settings(defaults: Path, drop_ins: Path, given: Sequence[str]) -> list[str]:
    """A sentence about each setting in the services' file that takes connections to other machines where the recorder's
    unit refuses them: neither the given addresses nor a drop-in allow them. Names are not looked up: any address that
    is allowed may be what they stand for."""
    import ipaddress

    # Given addresses replace those of the last time.
    files = [each for each in sorted(drop_ins.glob("*.conf")) if not given or each.name != Path(ALLOWED_ADDRESSES).name]
    lines = [line.removeprefix(_ALLOW) for each in files for line in _lines(each) if line.startswith(_ALLOW)]
    allowed = [*given, *(address for line in lines for address in line.split())]
    if "any" in allowed:
        return []
    networks = []
    for each in allowed:
        # Not systemd's names: localhost, link-local, multicast.
        with suppress(ValueError):
            networks.append(ipaddress.ip_network(each, strict=False))

    def refused(setting: Setting[Any], host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return not networks
        # Of metrics the address is this node's own, and not that of the scraper.
        return not (networks if setting is METRICS else any(address in network for network in networks))

    known = dict(line.partition("=")[::2] for line in _lines(defaults))
    hosts = {setting: _host_of(setting, known.get(setting.variable, "").strip("\"' ")) for setting in _REMOTE}
    return [
        f"{setting.variable} in {defaults} ({host}) takes connections beyond loopback, which the recorder's unit "
        "refuses: run exhume install with --allow-address and the address of the other machine"
        for setting, host in hosts.items()
        if host is not None and not is_loopback(host) and refused(setting, host)
    ]


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(errors="replace").splitlines()]
    except OSError:
        return []


def _host_of(setting: Setting[Any], value: str) -> str | None:
    """The host of a URL, or of the address of the metrics; None for a directory of this node, or nothing."""
    from urllib.parse import urlsplit

    with suppress(ValueError):
        return urlsplit(f"//{value}" if setting is METRICS else value).hostname
    return None


def _everyone_reads(path: Path) -> bool:
    folders = all(each.stat().st_mode & stat.S_IXOTH for each in path.resolve().parents)
    return folders and bool(path.stat().st_mode & stat.S_IROTH)


def _last_capability() -> int:
    try:
        return int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    except (OSError, ValueError):
        return 0


def _print_plan(plan: Plan) -> None:
    for path, content in plan.files.items():
        print(f"# {path}\n{content.decode()}")
    for path, target in plan.links.items():
        print(f"# {path} -> {target}")
    print(f"# user and group {ACCOUNT}: systemd-sysusers")
    for unit in plan.units:
        print(f"# start {unit}")


def report(outcome: Outcome, nothing: str) -> None:
    for line in outcome.done or ([] if outcome.left else [nothing]):
        print(line)
    for line in outcome.left:
        say(f"exhume: {line}")
