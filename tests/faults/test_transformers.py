"""Faults in real models of transformers: in their attention, their weights, their batches; and their silence without one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from numscope.records.finding import Reason
from numscope.records.site import Phase
from tests.faults import models
from tests.faults.models import ATTENTION, MODELS, attend, training
from tests.faults.planting import ARMED_AT, Fault, found, watched
from tests.tape import line_of

INF = float("inf")


def expect(name: str, op: str, reason: Reason, module: str, *, code: str = "", marker: str = "", phase: Phase = Phase.FORWARD) -> Fault:
    file, line = (__file__, line_of(marker, __file__)) if marker else ("", 0)
    return Fault(name, lambda: training("t5"), op, reason, phase, module, ARMED_AT, file, line, code)


# ---- a fault in the attention function itself


def _attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, fault: str, **_: Any) -> tuple[Tensor, None]:
    """Attention by hand; its faults are armed at one step."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(-1, -2)
    if models.armed and fault == "exp":
        weights = (scores * 0 + 100).exp()  # attention exp
        weights = weights / weights.sum(-1, keepdim=True)
    elif models.armed and fault == "norm":
        centered = query - query
        length = centered.square().sum(-1, keepdim=True).sqrt()  # attention norm
        weights = (scores + length).softmax(-1)
    elif models.armed and fault == "cast":
        weights = ((scores + 1) * 1e9).half().float().softmax(-1)  # attention cast
    else:
        weights = scores.softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), None


for _fault in ("exp", "norm", "cast"):

    def _planted(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, fault: str = _fault, **more: Any) -> tuple[Tensor, None]:
        return _attention(module, q, k, v, mask, fault)

    attend(_planted, f"planted_{_fault}")

IN_ATTENTION = {
    "exp": ("exp", Reason.EXP_OVERFLOW, Phase.FORWARD),
    "norm": ("div", Reason.GRADIENT_AT_ZERO, Phase.BACKWARD),
    "cast": ("_to_copy", Reason.OVERFLOW, Phase.FORWARD),
}


# Each fault in each model under one watch that looks at all modules, and in another way: in turn, so that each two of the three meet.
WAYS = [
    (name, fault, how)
    for i, name in enumerate(ATTENTION)
    for j, fault in enumerate(IN_ATTENTION)
    for how in ("modules", "sentinel" if (i + j) % 2 or name in ("whisper", "clip") else "checkpointed")  # whose towers have one layer
]


@pytest.mark.parametrize(("name", "fault", "how"), WAYS)
def test_line_inside_an_attention_is_named(name: str, fault: str, how: str) -> None:
    op, reason, phase = IN_ATTENTION[fault]
    module = ATTENTION[name]
    checkpointed = how == "checkpointed"
    level = "sentinel" if how == "sentinel" else "modules"
    finding = found(lambda: training(name, attention=f"planted_{fault}", checkpointed=checkpointed), level=level)
    if phase is Phase.BACKWARD:  # the last layer's gradient comes first
        assert finding.culprit is not None
        module = finding.culprit.module
        assert module.split(".")[-1] in (ATTENTION[name].split(".")[-1], "encoder_attn")
        assert finding.culprit.phase is phase
    expect(name, op, reason, module, marker=f"attention {fault}", phase=phase).check(finding)


# ---- a fault in weights, buffers, inputs: the line lies in the library


def scale(*names: str, by: float) -> Any:
    def plant(model: nn.Module) -> None:
        for name in names:
            model.get_parameter(name).mul_(by)

    return plant


def test_t5_gated_gelu_overflows_float16() -> None:
    ff = "encoder.block.1.layer.1.DenseReluDense"
    plant = scale(f"{ff}.wi_0.weight", f"{ff}.wi_1.weight", by=3e3)
    finding = found(lambda: training("t5", dtype=torch.float16, plant=plant))
    expect("t5", "mul", Reason.OVERFLOW, ff, code="hidden_gelu * hidden_linear").check(finding)
    culprit = finding.culprit
    assert culprit is not None and culprit.file.endswith("modeling_t5.py")
    assert "float16's maximum 65504" in culprit.detail
    assert "numscope.high_precision(model.encoder.block[1].layer[1].DenseReluDense)" in culprit.advice
    assert (finding.site.module, finding.site.slot) == (f"{ff}.dropout", "input[0]")


def test_projection_overflows_float16() -> None:
    plant = scale("model.layers.1.mlp.up_proj.weight", "model.layers.1.post_attention_layernorm.weight", by=5e3)
    finding = found(lambda: training("llama", dtype=torch.float16, plant=plant))
    expect("llama", "mm", Reason.OVERFLOW, "model.layers.1.mlp.up_proj", code="self.up_proj(x)").check(finding)
    assert (finding.site.module, finding.site.slot) == ("model.layers.1.mlp.up_proj", "output")


def test_weights_made_bad_between_steps_are_named_with_the_line_that_wrote_them() -> None:
    finding = found(lambda: training("gpt2", plant=scale("transformer.h.1.mlp.c_fc.weight", by=INF)))
    culprit = finding.culprit
    assert culprit is not None and culprit.reason == Reason.BAD_INPUT
    assert (culprit.op, culprit.code, culprit.detail) == ("aten.mul_", "model.get_parameter(name).mul_(by)", "mul was given other = inf.")
    assert (finding.site.module, finding.site.slot, finding.step) == ("transformer.h.1.mlp.c_fc", "weight", ARMED_AT)


def test_expert_of_a_mixture_overflows() -> None:
    finding = found(lambda: training("mixtral", plant=scale("model.layers.1.mlp.experts.gate_up_proj", by=1e25)))
    culprit = finding.culprit
    assert culprit is not None and culprit.reason == Reason.OVERFLOW
    assert culprit.module == "model.layers.1.mlp.experts" and culprit.file.endswith(".py")


def test_temperature_of_a_contrastive_model_overflows() -> None:
    finding = found(lambda: training("clip", plant=lambda m: m.logit_scale.fill_(100)))
    expect("clip", "exp", Reason.EXP_OVERFLOW, "", code="logit_scale.exp()").check(finding)


def test_state_space_s_decay_overflows_and_only_its_gradient_shows_it() -> None:
    finding = found(lambda: training("mamba", plant=lambda m: m.get_parameter("backbone.layers.1.mixer.A_log").fill_(100)))
    culprit = finding.culprit
    assert culprit is not None and culprit.module == "backbone.layers.1.mixer"
    assert culprit.reason in (Reason.EXP_OVERFLOW, Reason.ZERO_TIMES_INF)
    assert "A_log" in culprit.code


def test_image_with_an_infinite_pixel_is_bad_input() -> None:
    finding = found(lambda: training("vit", spoil=lambda batch: batch["pixel_values"][0, 1, 2].fill_(INF)))
    culprit = finding.culprit
    assert culprit is not None and culprit.reason == Reason.BAD_INPUT
    assert culprit.detail.startswith("Input[pixel_values] held 8 inf") or "pixel_values" in culprit.detail
    assert finding.step == ARMED_AT


def test_all_labels_ignored_is_named_in_the_library_s_loss() -> None:
    finding = found(lambda: training("bert", spoil=lambda batch: batch["labels"].fill_(-100)))
    expect("bert", "nll_loss_forward", Reason.DIVISION_BY_ZERO, "", code="loss_fct").check(finding)


def test_row_masked_entirely_in_eager_attention_is_named() -> None:
    def spoil(batch: dict[str, Any]) -> None:
        mask = torch.zeros(2, 1, 6, 6).masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -INF)
        mask[0, :, 0] = -INF
        batch["attention_mask"] = mask

    finding = found(lambda: training("llama", attention="eager", spoil=spoil))
    expect("llama", "_softmax", Reason.INF_MINUS_INF, "model.layers.0.self_attn", code="softmax(").check(finding)


def test_patched_forward_of_a_submodule_is_named() -> None:
    def plant(model: nn.Module) -> None:
        pooler = model.get_submodule("bert.pooler")

        def forward(hidden: Tensor) -> Tensor:
            first = hidden[:, 0]
            return (first - first.max() - 1).log()  # patched

        pooler.forward = forward  # type: ignore[method-assign]

    finding = found(lambda: training("bert", plant=plant))
    expect("bert", "log", Reason.DOMAIN, "bert.pooler", marker="patched").check(finding)


# ---- silence


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", MODELS)
def test_healthy_model_trains_in_silence(name: str, implementation: str) -> None:
    if name == "mamba" and implementation == "sdpa":
        pytest.skip("no attention")
    scope = watched(lambda: training(name, attention="" if name == "mamba" else implementation))
    assert scope.findings == []


def test_infinite_mask_given_by_the_user_is_silent() -> None:
    def spoil(batch: dict[str, Any]) -> None:
        batch["attention_mask"] = torch.zeros(2, 1, 6, 6).masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -INF)

    scope = watched(lambda: training("llama", attention="eager", spoil=spoil))
    assert scope.findings == []


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_generation_between_steps_is_silent(name: str) -> None:
    def plant(model: nn.Module) -> None:
        model.eval()
        model.generate(torch.randint(5, 60, (1, 4)), max_new_tokens=4, do_sample=False, bad_words_ids=[[7], [8]])  # type: ignore[operator]
        model.train()

    scope = watched(lambda: training(name, plant=plant))
    assert scope.findings == [] and scope.step_number == 2
