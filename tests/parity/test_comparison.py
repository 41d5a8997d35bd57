"""Fingerprints of modules and state dicts: what they hold, how they are kept, and what comparing them says."""

from __future__ import annotations

import copy
import json
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given as examples
from hypothesis import strategies as st
from torch import nn

import numscope
from numscope.records.fingerprint import Fingerprint, TensorPrint, merge_all
from numscope.runs.fingerprints import FingerprintComparison
from numscope.summary.checksum import checksum
from numscope.summary.sketch import Piece, sketches


class Attention(nn.Module):
    """Grouped queries: 8 rows of queries, 4 of keys, 4 of values."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        sizes = {"qkv_proj": 16} if fused else {"q_proj": 8, "k_proj": 4, "v_proj": 4}
        for name, size in sizes.items():
            self.add_module(name, nn.Linear(8, size))


def model() -> nn.Sequential:
    torch.manual_seed(3)
    made = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 6))
    made[2].weight.data *= 3
    return made


def text(comparison: FingerprintComparison) -> list[str]:
    return str(comparison).splitlines()


def test_a_copy_is_equal_and_true() -> None:
    found = numscope.compare(numscope.fingerprint(model()), numscope.fingerprint(copy.deepcopy(model())))
    assert found and text(found) == ["9 of 9 tensors are equal"]


def test_a_factor_and_a_changed_row_are_told_with_their_bounds() -> None:
    other = model()
    other[0].weight.data *= 2
    other[2].bias.data[3] += 10
    found = numscope.compare(numscope.fingerprint(model()), numscope.fingerprint(other))
    assert [pair.a for pair in found.differing] == ["0.weight", "2.bias"]
    doubled, moved = (pair.likeness for pair in found.differing)
    assert doubled is not None and doubled.factor == pytest.approx(2, abs=doubled.factor_error) and doubled.factor_error < 1e-6
    exact = 10 / float(model()[2].bias.detach().norm())
    assert moved is not None and moved.difference_bounds[0] <= exact <= moved.difference_bounds[1]
    assert not found


def test_numbers_in_another_dtype_are_equal_where_nothing_is_lost() -> None:
    state = {name: tensor.bfloat16().float() if tensor.is_floating_point() else tensor for name, tensor in model().state_dict().items()}
    low = {name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    assert numscope.compare(numscope.fingerprint(state), numscope.fingerprint(low))
    assert not numscope.compare(numscope.fingerprint(model()), numscope.fingerprint(low))


@pytest.mark.parametrize("wrap", ["module.{}", "_orig_mod.{}", "_fsdp_wrapped_module.{}", "module._orig_mod.{}", "policy.net.{}"])
def test_prefixes_of_wrappers_make_no_difference(wrap: str) -> None:
    state = {wrap.format(name): tensor for name, tensor in model().state_dict().items()}
    assert numscope.compare(numscope.fingerprint(model()), numscope.fingerprint(state))


def test_a_compiled_model_is_its_own() -> None:
    assert numscope.compare(numscope.fingerprint(model()), numscope.fingerprint(torch.compile(model())))


def test_one_name_of_a_tied_weight_is_enough() -> None:
    tied = nn.ModuleDict({"embed": nn.Embedding(5, 3), "head": nn.Linear(3, 5, bias=False)})
    tied["head"].weight = tied["embed"].weight  # type: ignore[assignment]
    one = {"embed.weight": tied["embed"].weight}
    assert numscope.compare(numscope.fingerprint(tied), numscope.fingerprint(one))
    assert numscope.compare(numscope.fingerprint(one), numscope.fingerprint(tied))


def test_other_names_are_found_by_content() -> None:
    state = model().state_dict()
    renamed = {"encoder.w": state.pop("0.weight"), **state}
    found = numscope.compare(numscope.fingerprint(model()), numscope.fingerprint(renamed))
    assert found and [(pair.a, pair.b) for pair in found.pairs if pair.a != pair.b] == [("0.weight", "encoder.w")]


def test_a_fused_layer_counts_as_its_parts() -> None:
    fused, parts = nn.ModuleDict({"attn": Attention(True)}), nn.ModuleDict({"attn": Attention(False)})
    whole: Any = fused["attn"].get_submodule("qkv_proj")
    begin = 0
    for name, size in (("q_proj", 8), ("k_proj", 4), ("v_proj", 4)):
        layer: Any = parts["attn"].get_submodule(name)
        layer.weight.data, layer.bias.data = whole.weight.data[begin : begin + size], whole.bias.data[begin : begin + size]
        begin += size
    # A bias does not say how many features go in, so its thirds are not the parts here.
    told = numscope.compare(numscope.fingerprint(fused), numscope.fingerprint(parts))
    assert {pair.a for pair in told.pairs if not pair.differs} >= {f"attn.{name}.weight" for name in ("q_proj", "k_proj", "v_proj")}
    layer.weight.data = layer.weight.data + 1
    told = numscope.compare(numscope.fingerprint(parts), numscope.fingerprint(fused))
    assert "attn.v_proj.weight" in [pair.a for pair in told.differing]
    assert numscope.compare(numscope.fingerprint(fused), numscope.fingerprint(fused)).pairs[0].a == "attn.qkv_proj.weight"


def test_adapters_are_merged_where_the_other_side_has_none() -> None:
    peft = pytest.importorskip("peft")
    base = model()
    adapted = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(target_modules=["0"], r=2, init_lora_weights=False))
    merged = copy.deepcopy(adapted).merge_and_unload()
    assert numscope.compare(numscope.fingerprint(adapted), numscope.fingerprint(merged))
    lost = numscope.compare(numscope.fingerprint(adapted), numscope.fingerprint(base))
    assert [(pair.a, pair.adapter, pair.cause, pair.why) for pair in lost.differing] == [
        ("0.weight", "a", "adapter", "the adapter of a is not in b")
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("times", [2.0, 0.5, -1.0, 1.4142])
def test_an_adapter_that_counts_otherwise_is_told_with_its_factor(times: float, dtype: torch.dtype) -> None:
    """Merged twice, subtracted, or scaled by another rule."""
    peft = pytest.importorskip("peft")
    base = model()
    adapted = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(target_modules=["0"], r=2, init_lora_weights=False))
    own = copy.deepcopy(adapted).merge_and_unload()[0].weight - base[0].weight
    with torch.no_grad():
        base[0].weight += times * own
    both = numscope.fingerprint(adapted), numscope.fingerprint(base.to(dtype))
    for a, b, sides in ((*both, "ba"), (*both[::-1], "ab")):
        [pair] = [pair for pair in numscope.compare(a, b).differing if pair.cause == "adapter"]
        told, found = pair.why.partition(", ")[0].rsplit(" ", 2)[0], float(pair.why.partition(" times")[0].rsplit(" ", 1)[1])
        assert told == f"{sides[0]} has the adapter of {sides[1]}" and found == pytest.approx(times, rel=0.02)


def test_an_adapter_is_where_its_tensors_are() -> None:
    peft = pytest.importorskip("peft")
    base = model()
    adapted = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(target_modules=["0", "2"], r=2, init_lora_weights=False))
    own = numscope.fingerprint(adapted)
    engine = {name.removeprefix("base_model.model.").replace("base_layer.", ""): one for name, one in adapted.state_dict().items()}
    for state in (adapted.state_dict(), engine):
        assert numscope.compare(own, numscope.fingerprint(state)) and numscope.compare(numscope.fingerprint(state), own)
    merged = numscope.fingerprint(copy.deepcopy(adapted).merge_and_unload())
    adapted.merge_adapter()
    in_place = numscope.fingerprint(adapted)
    assert all(numscope.compare(*both) for both in ((in_place, merged), (merged, in_place), (own, in_place), (in_place, own)))
    assert numscope.compare(own, numscope.fingerprint(adapted.state_dict()))
    stale = numscope.compare(in_place, numscope.fingerprint(base))
    assert [pair.a for pair in stale.differing] == ["0.weight", "2.weight"] and not stale.only_a


def test_a_file_keeps_all_of_it_in_about_600_bytes_a_tensor(tmp_path: Path) -> None:
    made = numscope.fingerprint(model())
    made.save(tmp_path / "a.json")
    assert Fingerprint.load(tmp_path / "a.json") == made
    assert (tmp_path / "a.json").stat().st_size < 650 * len(made.tensors)


@examples(st.integers(1, 5), st.integers(1, 40), st.data())
def test_roundings_of_shards_add_up_to_the_wholes(rows: int, columns: int, data: st.DataObject) -> None:
    draw = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    whole = torch.randn(rows, columns, generator=draw)
    down, across = (sorted({0, n, *data.draw(st.lists(st.integers(0, n), max_size=2))}) for n in whole.shape)
    parts = [
        Piece.at(whole[top:bottom, left:right], whole.shape, (top, left))
        for top, bottom in pairwise(down)
        for left, right in pairwise(across)
    ]
    assert merge_all(sketches(parts, rounds=True)).rounded == tuple(checksum(whole.to(dtype)) for dtype in (torch.bfloat16, torch.float16))


def test_a_small_step_of_a_small_tensor_is_not_taken_for_rounding() -> None:
    before = {"w": torch.linspace(1.02, 1.06, 8)}
    after = {"w": before["w"] + 1e-5}
    found = numscope.compare(numscope.fingerprint(after), numscope.fingerprint(before))
    assert torch.equal(after["w"].bfloat16(), before["w"].bfloat16()) and [pair.cause for pair in found.differing] == [""]
    found = numscope.compare(numscope.fingerprint(after), numscope.fingerprint(before), history={7: numscope.fingerprint(before)})
    assert [pair.why for pair in found.differing] == ["b has that of step 7"]


def test_stale_weights_in_another_dtype_are_those_of_their_step() -> None:
    states = {step: {"w": torch.randn(64, generator=torch.Generator().manual_seed(step))} for step in range(3)}
    history = {step: numscope.fingerprint(state) for step, state in states.items()}
    found = numscope.compare(history[2], numscope.fingerprint({"w": states[1]["w"].half()}), history=history)
    assert [pair.why for pair in found.differing] == ["b has that of step 1, float32 and float16"]


def test_the_step_that_explains_most_is_told() -> None:
    steps = [{"bias": torch.full((4,), 3.0), "w": torch.full((4, 4), float(step))} for step in range(3)]
    history = {step: numscope.fingerprint(state) for step, state in enumerate(steps)}
    found = numscope.compare(numscope.fingerprint({"bias": torch.ones(4), "w": torch.ones(4, 4) / 3}), history[1], history=history)
    assert [pair.why for pair in found.differing] == ["b has that of step 1"] * 2
    assert text(found) == ["0 of 2 tensors are equal", "  2 tensors: b has that of step 1: bias, w"]


def test_what_is_known_comes_first_and_rounding_last() -> None:
    draw = torch.Generator().manual_seed(0)
    own = {name: torch.randn(8, 8, generator=draw) for name in ("low", "small", "large", "nan", "old", "swapped", "turned")}
    wide = {"wide": torch.randn(8, 4, generator=draw)}
    given = {
        "low": own["low"].bfloat16().float(), "small": own["small"] * 1.01, "large": own["large"] * 3, "nan": own["nan"] / 0,
        "old": own["old"] + 1, "swapped": own["turned"], "turned": own["turned"].t(), "wide": wide["wide"].t(),
    }  # fmt: skip
    history = {"rank 1": numscope.fingerprint({"old": own["old"] + 1})}
    lines = text(numscope.compare(numscope.fingerprint({**own, **wide}), numscope.fingerprint(given), history=history))
    assert lines[0] == "0 of 8 tensors are equal"
    ends = {line.split(":")[0].strip(): line for line in lines[1:]}
    assert set(list(ends)[:4]) == {"wide", "swapped", "old", "turned"} and list(ends)[4:] == ["nan", "large", "small", "low"]
    assert ends["wide"] == "  wide: shapes [8, 4] and [4, 8]: transposed?" and ends["swapped"].endswith("b has a's turned there")
    assert ends["old"].endswith("b has that of rank 1") and ends["turned"].endswith("in another order, by their sum and norm?")
    assert ends["low"].endswith("equal once rounded to bfloat16") and "factor 1.01 ±" in ends["small"]


@pytest.mark.parametrize(
    ("shape", "told"), [((8, 97), "[8, 97]: transposed?"), ((128, 8), "[128, 8]: padded with zeros?"), ((776,), "[776]: reshaped?")]
)
def test_other_shapes_with_the_same_numbers_are_asked_about(shape: tuple[int, ...], told: str) -> None:
    own = torch.randn(97, 8, generator=torch.Generator().manual_seed(0))
    other = torch.cat((own.flatten(), torch.zeros(torch.Size(shape).numel() - own.numel()))).reshape(shape)
    found = numscope.compare(numscope.fingerprint({"embed": own}), numscope.fingerprint({"embed": other}))
    assert text(found)[1] == f"  embed: shapes [97, 8] and {told}"


def test_norms_that_are_stored_without_their_one_are_asked_about() -> None:
    draw = torch.Generator().manual_seed(0)
    own = {f"norm{i}": 1 + 0.1 * torch.randn(48, generator=draw) for i in range(3)}
    stored = numscope.fingerprint({name: one - 1 for name, one in own.items()})
    for a, b, sign in ((numscope.fingerprint(own), stored, "-"), (stored, numscope.fingerprint(own), "+")):
        found = numscope.compare(a, b)
        assert {pair.cause for pair in found.pairs} == {"shifted"}
        assert text(found)[1] == f"  3 tensors: b is a {sign} 1, by their sum and norm?: norm0, norm1, norm2"
    other = numscope.compare(numscope.fingerprint(own), numscope.fingerprint({name: one + 0.9 for name, one in own.items()}))
    assert {pair.cause for pair in other.pairs} == {""}


def test_files_of_several_ranks_are_one_fingerprint(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(4, 3)
    for rank in range(2):
        part = Piece.at(whole[2 * rank : 2 * rank + 2], (4, 3), (2 * rank, 0))
        Fingerprint({"w": TensorPrint((4, 3), "float32", {part.place: sketches([part])[0]})}).save(tmp_path / f"{rank}.json")
    files = [tmp_path / "0.json", tmp_path / "1.json"]
    assert numscope.compare(files, numscope.fingerprint({"w": whole}))
    half = numscope.compare(files[:1], numscope.fingerprint({"w": whole}))
    assert [pair.why for pair in half.differing] == ["parts of a are missing: load the files of all ranks"]


@pytest.mark.parametrize(
    "wrong", ["", "[]", '{"fingerprint": 2}', '{"fingerprint": 1, "tensors": {"w": {"shape": [2], "dtype": "a", "parts": {"": "no"}}}}']
)
def test_another_file_is_refused(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(wrong)
    with pytest.raises(numscope.UsageError, match=r"a\.json: can't be read .*expected a file that Fingerprint\.save has written"):
        numscope.compare(tmp_path / "a.json", tmp_path / "a.json")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (3, r"got int, expected a torch\.nn\.Module or tensors by name"),
        (torch.ones(2), r"got Tensor, expected a torch\.nn\.Module or tensors by name"),
        ([torch.ones(2)], "got Tensor among its elements, expected pairs of a name and a tensor"),
        ([("w", 3)], "got tuple among its elements, expected pairs of a name and a tensor"),
    ],
)
def test_what_is_no_model_is_refused(wrong: Any, told: str) -> None:
    with pytest.raises(numscope.UsageError, match=f"fingerprint: {told}"):
        numscope.fingerprint(wrong)


def test_pairs_of_an_iterator_are_taken_one_at_a_time() -> None:
    alive: list[weakref.ref[torch.Tensor]] = []

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in model().state_dict().items():
            assert not [one for one in alive[:-1] if one() is not None]
            alive.append(weakref.ref(own := tensor.clone()))
            yield f"model.{name}", own

    assert numscope.compare(numscope.fingerprint(model()), numscope.fingerprint(weights())) and len(alive) == 9


def test_buffers_that_no_state_dict_has_do_not_count() -> None:
    one = model()
    one.register_buffer("scratch", torch.ones(3), persistent=False)
    assert numscope.fingerprint(one) == numscope.fingerprint(one.state_dict())


def test_what_can_not_be_read_is_left_out_and_said_to(caplog: pytest.LogCaptureFixture) -> None:
    made = numscope.fingerprint({"w": torch.ones(2), "gone": torch.ones(3, device="meta")})
    assert list(made.tensors) == ["w"]
    assert caplog.messages == ["fingerprint: gone is left out: meta tensor float32[3]"]


def test_json_has_no_more_than_that(tmp_path: Path) -> None:
    numscope.fingerprint({"w": torch.ones(2), "step": 3, "inner": {"b": torch.zeros(1)}}).save(tmp_path / "a.json")
    told = json.loads((tmp_path / "a.json").read_text())
    assert list(told) == ["fingerprint", "tensors"] and list(told["tensors"]) == ["w", "inner.b"]


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (0.0, 0.0, "equal bits"),
        (0.0, 1.0, "differ by inf of the norm (inf to inf), cosine 0, factor 0 ± inf"),
        (1.0, 0.0, "differ by 1 of the norm (0.75 to 1.5), cosine 0, factor 0 ± 5e-07"),
        (1.0, float("nan"), "differ by 1 of the norm (0.75 to 1.5), cosine 0, factor 0 ± 5e-07; 0 and 8 elements not finite"),
    ],
)
def test_zeros_and_what_is_not_finite_are_told(a: float, b: float, text: str) -> None:
    one, other = (numscope.fingerprint({"w": torch.full((8,), value)}) for value in (a, b))
    like = numscope.compare(one, other).pairs[0].likeness
    assert like is not None and like.text() == text
