"""The same step again, op by op: what made the bad number, and why."""
