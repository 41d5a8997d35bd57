"""Checks: what goes wrong in silence, in a training's loop, its model, its data and its ranks."""
