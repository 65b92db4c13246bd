"""A program opens new connections without end in a network namespace that tracks them: its table fills, and from then
on the kernel has to find one to drop for each that is new."""

from exhume.lab.filters import restore_command
from exhume.lab.network import new_namespace
from exhume.lab.stage import Stage

SUMMARY = "a program opens connections without end; the full table of tracked connections is searched for room"
# The packets need not arrive: it is enough that they are tracked on their way out.
RULES = """*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A OUTPUT -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT
COMMIT
"""
# The program goes through them again and again, each time from another port of its own.
ADDRESSES = 8
PORTS = 2_000


def play(stage: Stage) -> None:
    namespace = new_namespace(stage)
    namespace.run(restore_command(), told=RULES)
    words = ("127.8.0.1", str(ADDRESSES), str(PORTS), "500", "0")
    stage.start("send_packets", str(stage.seconds), namespace.path, *words, core=stage.core)
    stage.wait()
