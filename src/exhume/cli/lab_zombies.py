"""exhume lab run zombies and zombie-storm: removed cgroups that stay, and a core that spins over them."""

from argparse import Namespace

from exhume.cli import exits


def make(options: Namespace) -> int:
    from time import monotonic_ns

    from exhume.cli.speaking import ProgressBar, say, suggest
    from exhume.lab.pins import PINS as KINDS
    from exhume.lab.zombies import make_zombies
    from exhume.model.text import count, duration

    began = monotonic_ns()
    with ProgressBar("making zombies") as bar:
        lab = make_zombies(
            options.count or 1000,
            options.pin or "tmpfs",
            work=options.work,
            parent=options.parent,
            progress=lambda done, total: bar(done / total),
        )
    lab.keep()
    took = duration(monotonic_ns() - began)
    print(f"{count(lab.made, 'zombie')} below {lab.parent}, each pinned by {KINDS[lab.pin].description}; took {took}")
    if lab.holder_pid is not None:
        say(f"process {lab.holder_pid} holds {lab.files[0]}")
    suggest(f"exhume lab run zombie-storm{_work_words(options)}, or exhume lab clean{_work_words(options)}")
    return exits.OK


def storm(options: Namespace) -> int:
    from exhume.cli.speaking import ProgressBar, say, suggest
    from exhume.lab.storm import raise_storm
    from exhume.model.clock import NANOS
    from exhume.model.text import count, percent
    from exhume.model.times import parse_duration

    with ProgressBar("storm") as bar:
        storm = raise_storm(
            options.core,
            parse_duration(options.seconds or "10s") / NANOS,
            work=options.work,
            parent=options.parent,
            progress=lambda done, total: bar(done / total),
        )
    print(
        f"core {storm.core}: {storm.system_s:.1f} s of system time in {storm.elapsed_s:.1f} s "
        f"({percent(storm.system_s / storm.elapsed_s)}), {count(storm.passes, 'whole pass', 'whole passes')} over "
        f"{count(storm.zombies, 'zombie')} through {storm.file.name}, the longest {storm.longest_s * 1000:,.1f} ms"
    )
    if storm.left < storm.zombies:
        say(f"{count(storm.zombies - storm.left, 'zombie')} went meanwhile")
    suggest(f"exhume lab clean{_work_words(options)}")
    return exits.OK


def _work_words(options: Namespace) -> str:
    from shlex import quote

    return f" --work {quote(str(options.work))}" if options.work else ""
