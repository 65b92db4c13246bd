"""The table of tracked connections in a network namespace, under pressure in one of two ways, drawn by lot.

A program sends where address translation has run out of ports, so that the kernel searches for a free one for each
packet; or one reads the whole table over and over, while another fills it."""

from pathlib import Path

from exhume.lab.filters import restore_command
from exhume.lab.network import Namespace, new_namespace
from exhume.lab.stage import Stage

SUMMARY = "address translation searches for ports that it ran out of, or a program lists all tracked connections"
# The packets need not arrive: it is enough that they are tracked on their way out.
FILTER = """*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A OUTPUT -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT
COMMIT
"""
FEW_PORTS = """*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -p udp -j SNAT --to-source 127.0.0.1:30000-30127
COMMIT
"""
TABLE = Path("/proc/self/net/nf_conntrack")
FILLING_S = 3.0


def play(stage: Stage) -> None:
    namespace = new_namespace(stage)
    if TABLE.exists() and stage.rng.random() < 0.5:
        list_all(stage, namespace)
    else:
        run_out_of_ports(stage, namespace)


def run_out_of_ports(stage: Stage, namespace: Namespace) -> None:
    namespace.run(restore_command(), told=FILTER + FEW_PORTS)
    # One destination, from another port of its own each time: connections that only their translated port tells apart.
    words = ("127.8.0.1", "1", "1", "1", "0")
    stage.start("send_packets", str(stage.seconds), namespace.path, *words, core=stage.core)
    stage.wait()


def list_all(stage: Stage, namespace: Namespace) -> None:
    namespace.run(restore_command(), told=FILTER)
    words = ("127.8.0.1", "8", "2000", "500", "2000")
    stage.start("send_packets", str(FILLING_S), namespace.path, *words, name=f"{stage.name}-peer")
    stage.start("read_over", str(stage.seconds), namespace.path, str(TABLE), core=stage.core)
    stage.wait()
