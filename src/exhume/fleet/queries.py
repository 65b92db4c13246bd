"""The queries over the lake, each defined once: what is computed from the rows of some files (`select`), how the
results of several such parts are merged (`merge`), and their order (`order`). Every engine runs these, so all give the
same answer. Parts may be merged in any grouping as long as the rows of a node are merged together: merging is
idempotent.

Times are microseconds since 1970, by the hub's clock if a node's is off. `rows` is the content of the files, with the
columns that a query names, null where older files lack them; `parts` are the results of `select`.
"""

from dataclasses import dataclass, replace

from exhume.fleet.schema import ATTRIBUTES, INCIDENTS, JOBS, SUMMARIES, LakeTable
from exhume.model.clock import Window

# The course of a node has this many steps over the window, but no shorter ones than this.
STEPS, SHORTEST_STEP_S = 42, 600
# Findings per cause that are read for their remedies.
MOST_FINDINGS = 64
_MICROS = 1000


@dataclass(frozen=True, slots=True)
class Query:
    """One query. `columns` are the table's columns that it reads; `weight` is roughly how much longer a byte of it
    takes than a byte of summaries."""

    table: LakeTable
    columns: tuple[str, ...]
    select: str
    merge: str
    order: str
    weight: float = 1.0

    def within(self, window: Window, **values: int | str) -> "Query":
        """The query restricted to rows of a window, with further placeholders replaced by values."""
        filled: dict[str, int | str] = {
            "since": window.since // _MICROS,
            "until": window.until // _MICROS,
            "time": self.table.time,
            # Values come from the lake: a quote in one must not end the SQL string.
            **{name: each.replace("'", "''") if isinstance(each, str) else each for name, each in values.items()},
        }
        return replace(self, select=self.select.format(**filled), merge=self.merge.format(**filled))


def step_micros(window: Window) -> int:
    """The length of a step of the nodes' course."""
    return max(SHORTEST_STEP_S * 1_000_000, window.nanos // _MICROS // STEPS)


_MOMENT = '(epoch_us("{time}") - coalesce(clock_off_s::DOUBLE * 1e6, 0)::BIGINT)'
_WITHIN = f"WHERE {_MOMENT} >= {{since}} AND {_MOMENT} < {{until}}"

# The course of each boot of each node, step by step. `first` and `last` are its first and last minute in the step.
COURSE = Query(
    SUMMARIES,
    (
        *("node", "minute", "boot_id", "uptime_s", "memcgs_dying", "memcgs_tracked", "cost_per_zombie_us"),
        *("longest_stall_s", "clock_off_s"),
    ),
    f"""
    SELECT node, boot_id, {_MOMENT} // {{step}} AS step, count(*) AS minutes,
        min({_MOMENT}) AS first, max({_MOMENT}) AS last,
        min(uptime_s) AS uptime_low, max(uptime_s) AS uptime_high,
        arg_max(memcgs_dying, minute) AS dying, arg_max(memcgs_tracked, minute) AS tracked,
        sum(cost_per_zombie_us) AS cost_sum, count(cost_per_zombie_us) AS costs,
        max(longest_stall_s) AS longest_stall_s, max(clock_off_s) AS clock_off_s
    FROM rows {_WITHIN} GROUP BY ALL
    """,
    """
    SELECT node, boot_id, step, sum(minutes)::BIGINT AS minutes, min(first) AS first, max(last) AS last,
        min(uptime_low) AS uptime_low, max(uptime_high) AS uptime_high,
        arg_max(dying, last) AS dying, arg_max(tracked, last) AS tracked,
        sum(cost_sum) AS cost_sum, sum(costs)::BIGINT AS costs,
        max(longest_stall_s) AS longest_stall_s, max(clock_off_s) AS clock_off_s
    FROM parts GROUP BY ALL
    """,
    "ORDER BY node, first, boot_id",
)

_CHANGES = """
    SELECT node, key, moment, value FROM (
        SELECT *, lag(value) OVER course AS before, row_number() OVER course AS place
        FROM (SELECT node, key, {moment} AS moment, value FROM {source})
        WINDOW course AS (PARTITION BY node, key ORDER BY moment, value)
    ) WHERE place = 1 OR value IS DISTINCT FROM before
"""
# Equivalent to _CHANGES, but faster if most values never change: only the others are sorted.
_FEW_CHANGES = """
    SELECT node, key, moment, value FROM (
        WITH pushed AS (SELECT node, key, {moment} AS moment, value FROM {source}),
        keys AS (
            SELECT node, key, min(moment) AS moment, min(value) AS value, max(value) AS other,
                count(value) AS known, count(*) AS times
            FROM pushed GROUP BY node, key
        )
        SELECT node, key, moment, value FROM keys WHERE known = 0 OR (known = times AND value = other)
        UNION ALL
        SELECT node, key, moment, value FROM (
            SELECT *, lag(value) OVER course AS before, row_number() OVER course AS place
            FROM pushed SEMI JOIN (
                SELECT node, key FROM keys WHERE known > 0 AND (known < times OR value <> other)
            ) AS changing USING (node, key)
            WINDOW course AS (PARTITION BY node, key ORDER BY moment, value)
        ) WHERE place = 1 OR value IS DISTINCT FROM before
    )
"""
# Attribute values per node, each from when it was set; values that were merely pushed again are dropped.
VALUES = Query(
    ATTRIBUTES,
    ("node", "at", "key", "value", "clock_off_s"),
    _FEW_CHANGES.replace("{moment}", _MOMENT).replace("{source}", "rows " + _WITHIN),
    _CHANGES.replace("{moment}", "moment").replace("{source}", "parts"),
    "ORDER BY node, key, moment",
    # Ten thousand nodes push the same few values every day, which compress well.
    weight=64.0,
)

_OF_AN_INCIDENT = (
    "cause",
    "severity",
    "core",
    "function",
    "process",
    "culprit",
    "leaker",
    "lost_core_s",
)
# Incidents without duplicates.
EPISODES = Query(
    INCIDENTS,
    ("node", "at", "until", "id", "clock_off_s", *_OF_AN_INCIDENT),
    f"""
    SELECT node, id, min({_MOMENT}) AS moment, max(epoch_us(until) - epoch_us("at") + {_MOMENT}) AS ended,
        {", ".join(f"any_value({name}) AS {name}" for name in _OF_AN_INCIDENT)}
    FROM rows {_WITHIN} GROUP BY node, id
    """,
    f"""
    SELECT node, id, min(moment) AS moment, max(ended) AS ended,
        {", ".join(f"any_value({name}) AS {name}" for name in _OF_AN_INCIDENT)}
    FROM parts GROUP BY node, id
    """,
    "ORDER BY moment, node, id",
)

_SOME = f"ORDER BY md5(node || id), finding LIMIT {MOST_FINDINGS}"
# A deterministic selection of findings per cause, as the nodes made them, for their remedies.
FINDINGS = Query(
    INCIDENTS,
    ("node", "at", "id", "cause", "finding", "clock_off_s"),
    f"""
    SELECT * FROM (
        SELECT DISTINCT node, id, finding FROM rows {_WITHIN} AND cause = '{{cause}}' AND finding IS NOT NULL
    ) {_SOME}
    """,
    "SELECT DISTINCT node, id, finding FROM parts",
    _SOME,
)

# Members of failed jobs without duplicates: the nodes on which they failed, by default the node that reported it.
FAILURES = Query(
    JOBS,
    ("node", "at", "job", "kind", "member", "clock_off_s"),
    f"""
    SELECT DISTINCT coalesce(member, node) AS node, job, kind, {_MOMENT} AS moment FROM rows {_WITHIN}
    """,
    "SELECT DISTINCT node, job, kind, moment FROM parts",
    "ORDER BY job, node, moment, kind",
)
