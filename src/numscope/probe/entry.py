"""A watched module as probes and journals know it."""

from __future__ import annotations

from typing import Any

Leaves = list[tuple[str, Any]]


class Entry:
    """One watched module as probes and journals know it; the module itself is not kept."""

    __slots__ = ("cls", "gradient_slots", "is_root", "name")

    def __init__(self, name: str, cls: str, is_root: bool = False) -> None:
        self.is_root = is_root
        self.name = name
        self.cls = cls
        self.gradient_slots: dict[str, str] = {}

    def parameter(self, slot: str) -> str:
        """A parameter's name, as ``named_parameters`` gives it."""
        return f"{self.name}.{slot}" if self.name else slot

    def gradient_slot(self, slot: str) -> str:
        found = self.gradient_slots.get(slot)
        if found is None:
            found = self.gradient_slots[slot] = f"grad {slot}"
        return found
