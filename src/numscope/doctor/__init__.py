"""The doctor: which rank, host or link is broken. It stands apart: of torch only its child processes know."""
