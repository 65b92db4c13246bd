"""What a cause may look at and how it builds a finding: rows, samples, loads, quotes and the evidence builder."""
