"""The strongest cell of a whole recording is the incident, whatever else happens on the node."""

import pytest
from bench.page_unusual import judge, write_noisy


@pytest.mark.parametrize("seed", range(4))
def test_the_strongest_cell_is_the_incident(tmp_path, seed):
    planted = write_noisy(tmp_path / "recording", seed, cores=16, hours=0.25)
    judged = judge(tmp_path / "recording", planted, cells=300)
    assert judged.found
    assert judged.next_strongest < 0.95
    # Of which the most are short spikes of other cores.
    assert judged.coloured < 0.15
