"""Alerts: what is about to go wrong, and what goes wrong in silence."""
