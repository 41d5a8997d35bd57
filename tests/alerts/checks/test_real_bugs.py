"""Silent errors that real trainings had, in small forms written from their public descriptions; each is named with its parameter or line.

Those of ranks and data are in the tests of the checks of replicas and data.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.checkpoint import checkpoint

import numscope
from tests.alerts.checks.silent import Net, alerts_of, batches, line_of, one, train
from tests.distributed.ranks import RankPool


def test_stackoverflow_60335387_zero_grad_is_missing() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=1e-2)

    def training() -> None:
        for x, y in batches(5):
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # at fault
            optimizer.step()

    alert = one(alerts_of(model, training), "gradients not cleared")
    assert alert.evidence["line"] == line_of(test_stackoverflow_60335387_zero_grad_is_missing, "at fault")


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv1d(1, 6, 3), nn.BatchNorm1d(6), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.bn(self.conv(x.unsqueeze(1))).relu().flatten(1))


def test_pytorch_forum_84911_all_but_the_batch_norms_is_frozen() -> None:
    model = Convolutional()
    for name, parameter in model.named_parameters():
        if "bn" not in name:
            parameter.requires_grad = False
    optimizer = Adam([p for p in model.parameters() if p.requires_grad])
    alert = one(alerts_of(model, lambda: train(model, optimizer)), "almost all is frozen")
    assert alert.asks
    assert alert.evidence["parameters"] == ["conv.weight", "fc.weight"]


def test_lightning_9599_gradients_are_clipped_before_they_are_unscaled() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)

    def training() -> None:
        for x, y in batches(5):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            clip_grad_norm_(model.parameters(), 1.0)  # at fault
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()

    alert = one(alerts_of(model, training), "clipped before unscaling")
    assert alert.evidence["line"] == line_of(test_lightning_9599_gradients_are_clipped_before_they_are_unscaled, "at fault")


def test_vsepp_4_validation_in_an_epoch_leaves_the_model_in_eval_mode_until_the_next() -> None:
    model = Net()
    optimizer = Adam(model.parameters())

    def validate() -> None:
        model.eval()
        with torch.no_grad():
            for x, _ in batches(2):
                model(x)

    def training() -> None:
        for _ in range(2):
            model.train()
            for number, (x, y) in enumerate(batches(8)):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()  # at fault
                optimizer.step()
                if number == 3:
                    validate()

    alert = one(alerts_of(model, training), "eval mode")
    assert alert.step == 4
    assert alert.evidence["line"] == line_of(test_vsepp_4_validation_in_an_epoch_leaves_the_model_in_eval_mode_until_the_next, "at fault")


class Adapted(nn.Linear):
    """A frozen layer with an adapter of low rank."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width)
        self.requires_grad_(False)
        self.lora_a, self.lora_b = nn.Linear(width, 2, bias=False), nn.Linear(2, width, bias=False)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.lora_b(self.lora_a(x))


class Checkpointed(nn.Module):
    """A frozen embedding, adapted blocks under checkpoints, and a head that is trained."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, 8).requires_grad_(False)
        self.blocks = nn.ModuleList([Adapted(8), Adapted(8)])
        self.head = nn.Linear(8, 3)
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=self.use_reentrant).relu()
        return self.head(h)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_transformers_26221_checkpoints_over_a_frozen_embedding_keep_gradients_from_the_adapters() -> None:
    model = Checkpointed(use_reentrant=True)
    optimizer = AdamW([p for p in model.parameters() if p.requires_grad])
    alert = one(alerts_of(model, lambda: train(model, optimizer)), "parameter without gradient")
    assert alert.evidence["parameters"] == [f"blocks.{i}.lora_{part}.weight" for i in (0, 1) for part in "ab"]
    assert (alert.layer, alert.evidence["edge"]) == ("blocks", "head")


def test_checkpoints_that_are_not_reentrant_are_left_alone() -> None:
    model = Checkpointed(use_reentrant=False)
    assert alerts_of(model, lambda: train(model, AdamW([p for p in model.parameters() if p.requires_grad]))) == []


def test_megatron_lm_656_head_and_embedding_come_apart_as_parameters_are_moved() -> None:
    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.lm_head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
            self.lm_head.weight = self.embedding.weight

        def forward(self, tokens: Tensor) -> Tensor:
            return self.lm_head(self.embedding(tokens))

    model = Language()

    def training() -> None:
        for module in model.modules():  # each gets a place of its own in a flat buffer
            for name, parameter in list(module._parameters.items()):
                if parameter is not None:
                    module._parameters[name] = nn.Parameter(parameter.detach().clone())
        optimizer = SGD(model.parameters(), lr=0.1)
        for seed in range(4):
            tokens = torch.randint(11, (4, 7), generator=torch.Generator().manual_seed(seed))
            optimizer.zero_grad()
            F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()

    alert = one(alerts_of(model, training), "untied weights")
    assert (alert.layer, alert.tensor) == ("lm_head", "weight")
    assert alert.evidence["tied"] == ["embedding.weight", "lm_head.weight"]


def test_nni_4521_pruned_layers_are_new_and_the_optimizer_has_the_old_ones() -> None:
    model = Net(dropout=0.0)
    optimizer = SGD(model.parameters(), lr=0.1)

    def finetune() -> None:
        model.first.weight = nn.Parameter(model.first.weight.detach()[:4])
        model.first.bias = nn.Parameter(model.first.bias.detach()[:4])
        model.last.weight = nn.Parameter(model.last.weight.detach()[:, :4])
        train(model, optimizer)

    alert = one(alerts_of(model, finetune), "parameter without optimizer")
    assert alert.evidence["parameters"] == ["first.weight", "first.bias", "last.weight"]


def test_practical_pytorch_9_the_model_is_made_twice_and_the_optimizer_between() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    model = Net()
    alert = one(alerts_of(model, lambda: train(model, optimizer)), "parameter without optimizer")
    assert not alert.asks
    assert alert.evidence == {
        "optimizer": "SGD",
        "parameters": ["first.weight", "first.bias", "last.weight", "last.bias"],
        "num_parameters": 4,
    }


def test_llama_cookbook_27_the_scheduler_steps_with_each_micro_batch() -> None:
    model = Net()
    optimizer = AdamW(model.parameters(), lr=1e-3)
    scheduler = CosineAnnealingLR(optimizer, 50)

    def training() -> None:
        for number, (x, y) in enumerate(batches(16)):
            (F.cross_entropy(model(x), y) / 4).backward()
            if (number + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
            scheduler.step()  # at fault

    alert = one(alerts_of(model, training), "scheduler order")
    assert alert.evidence["line"] == line_of(test_llama_cookbook_27_the_scheduler_steps_with_each_micro_batch, "at fault")


class Primitive(torch.autograd.Function):
    """A linear layer that autocast does not know."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:  # type: ignore[no-untyped-def,override]
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def,override]
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.T @ x


def test_lightning_thunder_725_autocast_does_not_reach_linear_layers() -> None:
    class Linear(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return Primitive.apply(x, self.weight) + self.bias  # type: ignore[no-untyped-call]

    model = nn.Sequential(Linear(4, 8), nn.Tanh(), Linear(8, 3))
    optimizer = SGD(model.parameters(), lr=0.1)

    def training() -> None:
        for x, y in batches(5):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                out = model(x)  # at fault
            F.cross_entropy(out, y).backward()
            optimizer.step()

    alert = one(alerts_of(model, training), "autocast without effect")
    assert alert.evidence["line"] == line_of(test_lightning_thunder_725_autocast_does_not_reach_linear_layers, "at fault")


def test_pytorch_115607_an_update_that_was_specialized_for_missing_gradients_does_nothing_later() -> None:
    """The compiled step had no guard on gradients being None, so that what was made for a frozen phase ran in later ones."""

    class Obsolete(SGD):
        def step(self, closure=None):  # type: ignore[no-untyped-def,override]
            live = self.param_groups[0]["params"][0]
            with torch.no_grad():
                live -= 0.1 * live.grad

    model = Net()
    alert = one(alerts_of(model, lambda: train(model, Obsolete(model.parameters(), lr=0.1))), "weight does not move")
    assert alert.evidence["parameters"] == ["first.bias", "last.weight", "last.bias"]


def test_loss_wrapped_into_a_new_variable_trains_nothing() -> None:
    """ "Variable(loss.data, requires_grad=True)", by which many answers in forums silence backward's complaint."""
    model = Net()
    optimizer = Adam(model.parameters())

    def training() -> None:
        for x, y in batches(5):
            optimizer.zero_grad()
            loss = torch.autograd.Variable(F.cross_entropy(model(x), y).data, requires_grad=True)
            loss.backward()  # at fault
            optimizer.step()

    alert = one(alerts_of(model, training), "loss does not reach the model")
    assert alert.evidence["line"] == line_of(test_loss_wrapped_into_a_new_variable_trains_nothing, "at fault")


def test_optimizer_made_inside_the_loop_forgets_its_moments() -> None:
    model = Net()

    def training() -> None:
        for x, y in batches(6):
            optimizer = Adam(model.parameters(), lr=1e-3)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()  # at fault

    alert = one(alerts_of(model, training), "optimizer state lost")
    assert alert.evidence["line"] == line_of(test_optimizer_made_inside_the_loop_forgets_its_moments, "at fault")


def test_best_weights_are_kept_by_reference_and_put_back() -> None:
    """``best = model.state_dict()`` holds the weights themselves; a copy that is put back each step undoes the training."""
    model = Net()
    best = copy.deepcopy(model.state_dict())
    optimizer = Adam(model.parameters())

    def training() -> None:
        for x, y in batches(6):
            model.load_state_dict(best)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    alert = one(alerts_of(model, training), "weight does not move")
    assert alert.evidence["num_parameters"] == 4


def sharded_too_late(rank: int) -> list[tuple[str, bool, list[str]]]:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = Net(dropout=0.0)
    optimizer = AdamW(model.parameters())
    fully_shard(model.first)
    fully_shard(model)
    scope = numscope.watch(model, on_nonfinite="warn")
    train(model, optimizer, 5)
    scope.close()
    said = [alert for alert in scope.alerts if alert.rule != "same data on ranks"]  # as here on purpose
    return [(alert.rule, alert.asks, alert.evidence["parameters"]) for alert in said]


def test_optimizer_made_before_fully_shard_has_the_tensors_from_before(ranks: RankPool) -> None:
    for told in ranks.run(sharded_too_late):
        assert [(rule, asks) for rule, asks, _ in told.value] == [("parameter without optimizer", False)]
        assert told.value[0][2] == [
            "first.weight",
            "first.bias",
        ]  # those of the root are gathered when the next step shows that this one is over
