"""The stack sampler: perf_event_open through ctypes, one mmapped ring per CPU, drained once a second."""
