"""perf.data, read without the perf program: header, records, tasks, symbols."""
