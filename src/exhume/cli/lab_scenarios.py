"""exhume lab run NAME: one scenario, played for real and cleared away."""

import shlex
from argparse import Namespace

from exhume.cli import exits


def run(options: Namespace) -> int:
    from exhume.cli.speaking import Doing, say, suggest
    from exhume.cli.stopping import ended_by_signals
    from exhume.lab.perform import perform, scenario_named
    from exhume.model.clock import NANOS
    from exhume.model.times import parse_duration

    scenario = scenario_named(options.scenario)
    seconds = None if options.seconds is None else parse_duration(options.seconds) / NANOS
    try:
        with ended_by_signals(), Doing() as doing:
            stage = perform(
                scenario,
                seconds=seconds,
                core=options.core,
                name=options.name,
                seed=options.seed,
                work=options.work,
                progress=doing,
            )
    except KeyboardInterrupt:
        say(f"{scenario.name} was stopped, and all that it made is removed")
        return exits.INTERRUPTED
    where = f"on core {stage.core}" if scenario.on_core else "on this machine"
    print(f"{scenario.name}: {stage.seconds:g} s {where}, by {stage.name}; all that it made is removed")
    suggest(f"exhume diagnose --last {shlex.quote(f'{round(stage.seconds) + 30}s')}, where a recorder ran meanwhile")
    return exits.OK
