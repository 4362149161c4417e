"""Benchmarks: what Fairlane costs as its users run it, beside its peers and beside what the machine could do at all.
They print figures and assert none; docs/performance.md says what each figure means."""
