"""Detection: what was seen in a step, in order, and what of it is wrong."""
