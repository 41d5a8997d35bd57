from __future__ import annotations

import pytest

from numscope.runs.align import ObservedLayer, align

ALL = frozenset({"activation", "output"})


def seen(*names: str, cls: str = "Linear") -> list[ObservedLayer]:
    return [ObservedLayer(name, cls, ALL) for name in names]


def found(a: list[ObservedLayer], b: list[ObservedLayer]) -> list[tuple[str, str, str]]:
    return [(p.a, p.b, p.how) for p in align(a, b).pairs]


def test_same_names_pair_in_any_order() -> None:
    assert found(seen("x", "y"), seen("y", "x")) == [("x", "x", "name"), ("y", "y", "name")]


@pytest.mark.parametrize("wrapped", ["module.layers.0.fc", "_orig_mod.layers.0.fc", "layers.0._fsdp_wrapped_module.fc"])
def test_wrappers_segments_are_no_part_of_a_name(wrapped: str) -> None:
    assert found(seen("layers.0.fc"), seen(wrapped)) == [("layers.0.fc", wrapped, "wrapper")]


def test_a_prefix_that_one_run_adds_is_seen_through() -> None:
    assert found(seen("layers.0.fc", "head"), seen("net.layers.0.fc", "net.head")) == [
        ("layers.0.fc", "net.layers.0.fc", "prefix"),
        ("head", "net.head", "prefix"),
    ]


def test_a_renamed_prefix_needs_two_witnesses() -> None:
    names = [f"{i}.{fc}" for i in range(3) for fc in ("fc1", "fc2")]
    pairs = found(seen(*(f"transformer.h.{n}" for n in names)), seen(*(f"model.layers.{n}" for n in names)))
    assert pairs == [(f"transformer.h.{n}", f"model.layers.{n}", "prefix") for n in names]
    assert align(seen("encoder.norm", cls=""), seen("decoder.norm", cls="")).pairs == ()


def test_other_names_pair_by_class_and_order_where_both_have_equally_many() -> None:
    a = [*seen("q", "k", "v"), *seen("norm", cls="LayerNorm")]
    b = [*seen("wq", "wk", "wv"), *seen("ln", cls="LayerNorm")]
    assert found(a, b) == [("q", "wq", "order"), ("k", "wk", "order"), ("v", "wv", "order"), ("norm", "ln", "order")]


def test_a_missing_layer_shifts_no_other() -> None:
    alignment = align(seen("q", "k", "v"), seen("wq", "wv"))
    assert (alignment.pairs, alignment.only_a, alignment.only_b) == ((), ("q", "k", "v"), ("wq", "wv"))


def test_names_that_agree_are_not_given_away_by_a_prefix() -> None:
    a, b = seen("a.fc", "b.fc"), seen("a.fc", "c.a.fc", "c.b.fc")
    assert found(a, b) == [("a.fc", "a.fc", "name"), ("b.fc", "c.b.fc", "prefix")]
    assert align(a, b).only_b == ("c.a.fc",)


def test_no_layer_is_given_twice() -> None:
    pairs = align(seen("fc", "module.fc"), seen("module.module.fc", "x.fc")).pairs
    assert len({p.b for p in pairs}) == len(pairs)
