"""Record this node and serve its page, on loopback: what `exhume` does without a command.

The recorder and the page's server are two programs that meet only in the recording: the server has no privileges, and
its end does not end the recorder.
"""

import os
import subprocess
from argparse import Namespace

from exhume.cli import exits
from exhume.cli.options import value_of
from exhume.cli.record import SETTINGS
from exhume.model.isolation import isolated_environment, isolated_python

LISTEN = "EXHUME_LISTEN"


def run(options: Namespace) -> int:
    values = {name: value_of(options, name) for name in SETTINGS}

    from exhume.cli.recording import record_node
    from exhume.cli.serve import DEFAULT_LISTEN

    listen = os.environ.get(LISTEN) or DEFAULT_LISTEN
    command = isolated_python("exhume.cli.page", values["dir"], listen)
    # A session of its own: Ctrl-C is for the recorder, which ends the server when it has sealed.
    page = subprocess.Popen(command, env=isolated_environment(), stdin=subprocess.PIPE, start_new_session=True)
    try:
        record_node(values)
    finally:
        # The server ends when this pipe does, also after kill -9 of the recorder.
        assert page.stdin is not None
        page.stdin.close()
        page.wait()
    return exits.OK
