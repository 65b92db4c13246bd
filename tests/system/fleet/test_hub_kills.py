"""A real hub, killed at random while nodes send: what it acknowledged is in the lake, and nothing is there twice.

EXHUME_HUB_KILLS is the number of kills."""

import os
import random
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.fleet.fleet_rows import rows_in
from tests.system.fleet.hub_process import HubProcess, Sender

from exhume.fleet.lake import Lake

KILLS = int(os.environ.get("EXHUME_HUB_KILLS", "6"))
NODES = 4
pytestmark = [pytest.mark.slow, pytest.mark.paced, pytest.mark.timeout(120 + 10 * KILLS)]


def test_a_hub_that_is_killed_loses_nothing_it_acknowledged_and_stores_nothing_twice(tmp_path: Path) -> None:
    lake, state = tmp_path / "lake", tmp_path / "state"
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    senders = [Sender(f"node-{number}", state, seed + number) for number in range(NODES)]
    hub = HubProcess(str(lake), state, fold="300ms")
    hub.start()
    ended = threading.Event()

    def run(sender: Sender) -> None:
        while not ended.is_set():
            sender.send(hub.port, time.monotonic() + 0.2)

    threads = [threading.Thread(target=run, args=(sender,)) for sender in senders]
    for thread in threads:
        thread.start()
    try:
        for number in range(KILLS):
            time.sleep(chance.uniform(0.1, 1.2))
            hub.kill()
            if number % 2:
                # What a crashed hub has written may be compacted before it comes back.
                Lake.open(str(lake)).compact(datetime.now(UTC))
            hub.start()
        time.sleep(0.5)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        hub.stop()
    stored = [(row["node"], round(row["minute"].timestamp() * 1e6)) for row in rows_in(lake)]
    wanted = {(sender.node, minute) for sender in senders for minute in sender.acknowledged}
    assert len(wanted) > 100, "there was no load"
    assert wanted <= set(stored)
    assert len(stored) == len(set(stored))
    # Of what was not acknowledged each node may have one batch that was on its way.
    assert len(stored) <= len(wanted) + NODES
