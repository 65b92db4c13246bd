"""Reader of perf.data that doesn't need the perf program: header, records, tasks, symbols."""
