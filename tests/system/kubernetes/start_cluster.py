"""Brings up a cluster of the tests to try things in: `python -m tests.system.kubernetes.start_cluster [--api-only]`.

Prints the kubeconfig, and takes everything down at Ctrl-C, SIGTERM or after an hour.
"""

import signal
import sys
import time
from contextlib import suppress

from tests.system.kubernetes.own_cluster import own_api_server, own_node


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with own_api_server() if "--api-only" in sys.argv else own_node() as cluster, suppress(KeyboardInterrupt):
        print(f"export KUBECONFIG={cluster.kubeconfig} PATH={cluster.binaries}:$PATH", flush=True)
        time.sleep(3600)


if __name__ == "__main__":
    main()
