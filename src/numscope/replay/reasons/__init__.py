"""Why an operation made a non-finite value, from its operands’ numbers."""
