"""How busy a synthetic node is: a day's rhythm, jobs that come and go, and cores that differ."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

DAY_S = 86_400
MEAN_BUSY = 0.41
# A training job runs about this long; between two jobs its cores fall quiet for a moment.
JOB_S = 2_400
LULL_S = 45


@dataclass(frozen=True, slots=True)
class Load:
    """The share of time that a core is busy, for every second of the recording and every core."""

    by_second: npt.NDArray[np.float32]
    by_core: npt.NDArray[np.float32]

    def busy(self, first: int, seconds: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """cores x seconds, with the restlessness of single seconds on top."""
        level = self.by_core[:, None] * self.by_second[None, first : first + seconds]
        noise = rng.gamma(6.0, 1 / 6.0, level.shape).astype(np.float32)
        busy: npt.NDArray[np.float32] = np.clip(level * noise, 0.01, 0.98)
        return busy


def build_load(cores: int, seconds: int, seed: int) -> Load:
    rng = np.random.default_rng([seed, 5])
    moment = np.arange(seconds, dtype=np.float64)
    rhythm = 1.0 + 0.25 * np.sin(2 * np.pi * (moment / DAY_S + rng.random()))
    for job_start in np.cumsum(rng.exponential(JOB_S, int(seconds / JOB_S * 2) + 1)):
        rhythm[int(job_start) : int(job_start) + LULL_S] *= 0.45
    by_core = rng.lognormal(-0.08, 0.4, cores)
    return Load((MEAN_BUSY * rhythm / rhythm.mean()).astype(np.float32), (by_core / by_core.mean()).astype(np.float32))
