"""Lists of what others own, read while another thread changes them."""

from __future__ import annotations

from typing import Any

from numscope.probe.living import Living


class Item:
    """Of which weak references can be made."""


def test_who_goes_while_the_list_is_read_hides_nobody_else() -> None:
    living: Living[Item] = Living()
    items = [Item() for _ in range(3)]
    for item in items:
        living.add(item)

    def another_thread() -> Any:
        living._refs.remove(first)

    first = living._refs[0]
    living._refs.insert(1, another_thread)  # type: ignore[arg-type]  # read like a reference
    assert [*living.__iter__()] == items  # list() would ask for the length first
