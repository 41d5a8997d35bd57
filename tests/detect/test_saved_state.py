"""State that is saved with a model is watched: buffers, optimizers' states, weights and copies that the script itself writes.

In each training the loss stays finite in the step in which the state goes bad.
"""

from __future__ import annotations

import copy
import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import numscope
from numscope.detect import copies
from numscope.records.errors import NonFiniteError
from numscope.records.finding import Finding
from numscope.replay.glance import Region
from numscope.replay.tape import StorageRecord
from tests.faults.planting import marked_line, quiet

BAD_STEP = 3
Loop = Callable[[], None]


def finding_of(model: nn.Module, step: Callable[[int], object], steps: int = 6, **options: Any) -> Finding | None:
    """The finding of a training; None if there is none, not even one that is contained."""
    with quiet():
        try:
            with numscope.watch(model, **options) as scope:
                for i in range(steps):
                    step(i)
        except NonFiniteError as error:
            return error.finding
    assert scope.contained == [] and not scope.fault
    return None


def assert_named(plant: Callable[[], tuple[nn.Module, Callable[[int], object]]], op: str, slot: str, step: int = BAD_STEP) -> Finding:
    torch.manual_seed(0)
    finding = finding_of(*plant())
    assert finding is not None and finding.culprit is not None, finding
    culprit = finding.culprit
    assert (culprit.file, culprit.line) == marked_line(plant), finding.headline()
    assert culprit.op.removeprefix("aten.").strip("_").removeprefix("foreach_") in op.split("|"), culprit.op
    assert finding.site.slot in slot.split("|")
    assert finding.step == step
    return finding


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, scale: float = 1.0) -> None:
    optimizer.zero_grad()
    (model(x).square().mean() * scale).backward()
    optimizer.step()


# ---- buffers


def huge_batch() -> tuple[nn.Module, Callable[[int], object]]:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(i: int) -> None:
        x = torch.randn(16, 4) * (1e25 if i == BAD_STEP else 1.0)
        loss = model(x).square().mean()  # FAULT
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, step


def skipped_batch() -> tuple[nn.Module, Callable[[int], object]]:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.head(self.norm(x))  # FAULT
            return y

    model = Net()
    optimizer = torch.optim.Adam(model.parameters())

    def step(i: int) -> None:
        x = torch.randn(16, 4)
        x[0, 1] = float("nan") if i == BAD_STEP else 0.0
        loss = model(x).square().mean()
        if torch.isfinite(loss):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return model, step


def batch_whose_step_the_scaler_leaves_out() -> tuple[nn.Module, Callable[[int], object]]:
    class Gate(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.half().square().float()  # FAULT

    model = nn.Sequential(Gate(), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def step(i: int) -> None:
        loss = model(torch.randn(16, 4) * (1e3 if i == BAD_STEP else 1.0)).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return model, step


def normalizer() -> tuple[nn.Module, Callable[[int], object]]:
    class Normalizer(nn.Module):
        var: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("var", torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                count = (x > 0).sum(0)
                self.var = 0.9 * self.var + 0.1 * x.clamp(min=0).square().sum(0) / count  # FAULT
            return x / self.var.nan_to_num().add(1e-8).sqrt()

    model = nn.Sequential(Normalizer(), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(i: int) -> None:
        x = torch.randn(64, 3)
        x[:, 1] = -1.0 if i == BAD_STEP else x[:, 1]
        trained(model, optimizer, x)

    return model, step


def codebook() -> tuple[nn.Module, Callable[[int], object]]:
    class Quantizer(nn.Module):
        embed: Tensor
        sizes: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("embed", torch.randn(8, 4))
            self.register_buffer("sizes", torch.ones(8))
            self.forgets = False

        def forward(self, x: Tensor) -> Tensor:
            codes = nn.functional.one_hot(torch.cdist(x, self.embed.nan_to_num()).argmin(1), 8).float()
            self.sizes.data.mul_(0.0 if self.forgets else 0.9).add_(codes.detach().sum(0), alpha=0.1)
            self.embed.data.copy_(self.embed * self.sizes.unsqueeze(1) / self.sizes.unsqueeze(1))  # FAULT
            return x + (codes @ self.embed.nan_to_num() - x).detach()

    model = nn.Sequential(nn.Linear(3, 4), Quantizer(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def step(i: int) -> None:
        model[1].forgets = i == BAD_STEP
        trained(model, optimizer, torch.randn(2, 3))

    return model, step


@pytest.mark.parametrize(
    ("plant", "op", "slot"),
    [(huge_batch, "native_batch_norm", "running_var"), (normalizer, "div", "var"), (codebook, "div", "embed")],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_buffer_is_named_in_the_step_that_makes_it_bad(plant: Any, op: str, slot: str) -> None:
    finding = assert_named(plant, op, slot)
    assert finding.numbers is not None and finding.numbers.num_nonfinite


def test_buffer_is_named_though_the_script_skips_the_batch() -> None:
    finding = assert_named(skipped_batch, "native_batch_norm", "running_mean")
    assert not finding.contained and finding.site.module == "norm"


def test_buffer_is_named_though_the_scaler_leaves_the_step_out() -> None:
    """Weights are as they were, the running statistics are not."""
    finding = assert_named(batch_whose_step_the_scaler_leaves_out, "pow|square", "output[0]|output")
    assert not finding.contained


@pytest.mark.parametrize("level", ["modules", "sentinel"])
def test_sentinel_reads_buffers_too(level: str) -> None:
    finding = finding_of(*huge_batch(), level=level)
    assert finding is not None and finding.site.slot == "running_var"


def test_micro_batch_that_made_a_buffer_bad_is_done_again_and_not_the_last_one() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(i: int) -> None:
        optimizer.zero_grad()
        for k in range(4):
            model(torch.randn(16, 4) * (1e25 if (i, k) == (2, 1) else 1.0)).square().mean().backward()
        optimizer.step()

    finding = finding_of(model, step)
    assert finding is not None and finding.culprit is not None
    assert (finding.step, finding.batch, finding.culprit.op) == (2, 9, "aten.native_batch_norm")


# ---- optimizers' states


@pytest.mark.parametrize(
    ("optimizer_of", "state"),
    [
        (torch.optim.Adam, "exp_avg_sq"),
        (lambda p: torch.optim.AdamW(p, foreach=True), "exp_avg_sq"),
        (lambda p: torch.optim.Adam(p, amsgrad=True), "exp_avg_sq"),
        (torch.optim.RMSprop, "square_avg"),
        (torch.optim.Adagrad, "sum"),
        (torch.optim.Adadelta, "square_avg"),
    ],
)
def test_state_that_freezes_a_weight_is_named_in_its_step(optimizer_of: Any, state: str) -> None:
    model = small()
    optimizer = optimizer_of(model.parameters())
    finding = finding_of(model, lambda i: trained(model, optimizer, torch.randn(8, 4), 1e23 if i == BAD_STEP else 1.0))
    assert finding is not None and finding.step == BAD_STEP
    assert finding.site.slot.startswith(f"{state} of ") and finding.site.cls == type(optimizer).__name__
    culprit = finding.culprit
    assert culprit is not None and "addcmul" in culprit.op and "overflow" in culprit.detail
    assert all(p.isfinite().all() for p in model.parameters())


def test_state_that_went_bad_behind_the_optimizers_back_is_found_within_some_steps() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(20)), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def step(i: int) -> None:
        trained(model, optimizer, torch.randn(8, 4))
        if i == 2:
            optimizer.state[model[7].weight]["exp_avg_sq"][0, 0] = float("inf")

    finding = finding_of(model, step, steps=40)
    assert finding is not None and finding.site.slot == "exp_avg_sq of 7.weight"
    assert 2 < finding.step <= 2 + 32


# ---- what the script writes between two steps


def average() -> tuple[nn.Module, Callable[[int], object]]:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    def step(i: int) -> None:
        trained(model, optimizer, torch.randn(8, 4))
        correction = torch.tensor(0.0 if i == BAD_STEP else 1.0)
        with torch.no_grad():
            for name, p in model.named_parameters():
                shadow[name] = (0.9 * shadow[name] + 0.1 * p) / correction  # FAULT

    return model, step


def half_average() -> tuple[nn.Module, Callable[[int], object]]:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ema = copy.deepcopy(model).half()

    def step(i: int) -> None:
        trained(model, optimizer, torch.randn(8, 4))
        with torch.no_grad():
            model[0].bias[0] = 1e6 if i == BAD_STEP else 0.0
            for kept, p in zip(ema.parameters(), model.parameters(), strict=True):
                kept.mul_(0.9).add_(p.half(), alpha=0.1)  # FAULT

    return model, step


def averaged_model() -> tuple[nn.Module, Callable[[int], object]]:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    weight = [0.1]

    def update(averages: Any, current: Any, count: object) -> None:
        torch._foreach_lerp_(averages, current, weight[0])  # FAULT

    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=update)

    def step(i: int) -> None:
        trained(model, optimizer, torch.randn(8, 4))
        weight[0] = float("inf") if i == BAD_STEP else 0.1
        ema.update_parameters(model)

    return model, step


def teacher() -> tuple[nn.Module, Callable[[int], object]]:
    model = small()
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(i: int) -> None:
        trained(model, optimizer, torch.randn(8, 4))
        momentum = torch.tensor(float(i - BAD_STEP)) / float(i - BAD_STEP or 0.0 * torch.ones(()))  # FAULT
        for kept, p in zip(other.parameters(), model.parameters(), strict=True):
            kept.data.mul_(momentum).add_(p.data * (1 - momentum))

    return model, step


def normalized_weight() -> tuple[nn.Module, Callable[[int], object]]:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(i: int) -> None:
        trained(model, optimizer, torch.randn(8, 4))
        if i == BAD_STEP:
            model[0].weight.data[1].zero_()
        model[0].weight.data.div_(model[0].weight.data.norm(dim=1, keepdim=True))  # FAULT

    return model, step


def normalized_after_the_last_step() -> tuple[nn.Module, Callable[[int], object]]:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(i: int) -> None:
        trained(model, optimizer, torch.randn(8, 4))
        with torch.no_grad():
            norm = model[0].weight.norm() * (0.0 if i == 5 else 1.0)
            model[0].weight.copy_(model[0].weight / norm)  # FAULT

    return model, step


def own_descent() -> tuple[nn.Module, Callable[[int], object]]:
    model = small()

    def step(i: int) -> None:
        model.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        rate = 1e39 if i == BAD_STEP else 1e-2
        with torch.no_grad():
            for p in model.parameters():
                p -= rate * p.grad  # FAULT

    return model, step


def own_descent_by_data() -> tuple[nn.Module, Callable[[int], object]]:
    model = small()

    def step(i: int) -> None:
        model.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        for p in model.parameters():
            scaled = p.grad * (1e30 if i == BAD_STEP else 1e-3)
            p.data.add_(scaled, alpha=-1e20 if i == BAD_STEP else -1.0)  # FAULT

    return model, step


@pytest.mark.parametrize(
    ("plant", "op", "slot", "step"),
    [
        (average, "div", "copy of 0.weight", BAD_STEP + 1),
        (half_average, "to_copy", "copy of 0.bias", BAD_STEP + 1),
        (averaged_model, "lerp", "copy of 0.weight", BAD_STEP + 1),
        (teacher, "div", "copy of 0.weight", BAD_STEP + 1),
        (normalized_weight, "div", "weight", BAD_STEP + 1),
        (normalized_after_the_last_step, "div", "weight", 6),
        (own_descent, "mul", "weight", BAD_STEP),
        (own_descent_by_data, "add", "weight", BAD_STEP),
    ],
    ids=lambda p: getattr(p, "__name__", None),
)
def test_line_that_wrote_a_weight_or_its_copy_is_named_before_the_next_call(plant: Any, op: str, slot: str, step: int) -> None:
    assert_named(plant, op, slot, step)


# ---- what is made between two steps and reaches the model


def test_line_that_made_a_bad_batch_is_named() -> None:
    def plant() -> tuple[nn.Module, Callable[[int], object]]:
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step(i: int) -> None:
            power = torch.rand(8, 4) + 0.1
            power[0, 0] = 0.0 if i == BAD_STEP else 1.0
            trained(model, optimizer, torch.log10(power))  # FAULT

        return model, step

    torch.manual_seed(0)
    finding = finding_of(*plant())
    assert finding is not None and finding.culprit is not None and finding.step == BAD_STEP
    assert finding.culprit.op == "aten.log10" and (finding.culprit.file, finding.culprit.line) == marked_line(plant)


def test_line_in_a_dataset_is_named() -> None:
    class Data(torch.utils.data.Dataset[Tensor]):
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> Tensor:
            x = torch.ones(4) if index == 30 else torch.randn(4)
            return (x - x.mean()) / x.std()  # FAULT

    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with quiet(), pytest.raises(NonFiniteError) as raised, numscope.watch(model):
        for x in torch.utils.data.DataLoader(Data(), batch_size=8):
            trained(model, optimizer, x)
    culprit = raised.value.finding.culprit
    assert culprit is not None and culprit.op == "aten.div" and (culprit.file, culprit.line) == marked_line(Data)


# ---- what is meant so


class Masked(nn.Module):
    """Buffers that hold infinities on purpose, some from the start, some since a call."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("causal", torch.zeros(0, 0))
        self.register_buffer("biased", torch.zeros(0, 0))
        self.register_buffer("lowest", torch.full((), float("inf")))
        self.register_buffer("limit", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        if len(self.causal) < length:
            self.causal = torch.triu(torch.full((length, length), float("-inf")), 1)
            self.biased = self.causal - torch.arange(length).float()
        self.limit.fill_(float("inf"))
        self.limit[0] = 3.0
        self.lowest = torch.minimum(self.lowest, x.detach().amin())
        scores = self.fc(x) @ x.transpose(1, 2) + self.causal[:length, :length] + self.biased[:length, :length]
        return scores.softmax(-1) @ x.minimum(self.limit)


@pytest.mark.parametrize("level", ["modules", "sentinel"])
def test_infinities_that_are_meant_are_no_finding(level: str) -> None:
    model = Masked()
    optimizer = torch.optim.Adam(model.parameters())
    shadow = {name: t.clone() for name, t in model.state_dict().items()}
    lowest = [torch.full((), float("inf"))]
    log: list[Tensor] = []

    def step(i: int) -> None:
        loss = model(torch.randn(2, 3 + i, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        log.append(torch.log(model.fc.weight.detach() * 0))  # logged, not kept for training
        log.append(torch.exp(loss.detach() * 1e6))
        log.append(model.fc.weight.detach() / (model.fc.weight.grad * 0))
        optimizer.step()
        lowest[0] = torch.minimum(lowest[0], loss.detach() / 0)
        with torch.no_grad():
            model.limit.fill_(float("inf"))
            shadow["fc.weight"].mul_(0.9).add_(model.fc.weight, alpha=0.1)
            shadow["causal"] = model.causal.clone()
            hidden = torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1).bool(), float("-inf"))
            log.append(hidden)

    assert finding_of(model, step, level=level) is None


def test_state_that_was_bad_from_the_start_is_no_finding() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=True), nn.Linear(4, 1))
    model[1].running_var.fill_(float("nan"))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    assert finding_of(model, lambda i: trained(model, optimizer, torch.randn(8, 4))) is None


@pytest.mark.parametrize("bad_call", [0, 1, 3])
def test_large_buffer_that_is_written_by_data_is_named_where_it_went_bad(bad_call: int) -> None:
    """A codebook's average: ``.data`` changes no version, so what a call changes is seen by comparing the first copies."""

    class Codebook(nn.Module):
        codes: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("codes", torch.randn(64, 512))
            self.layer = nn.Linear(64, 64)

        def forward(self, x: Tensor) -> Tensor:
            more = x.abs().amax().sign()
            x = self.layer(x)
            nearest = (x @ self.codes).argmax(1)
            found = F.embedding(nearest, self.codes.t())
            with torch.no_grad():
                hits = F.one_hot(nearest, 512).float().sum(0)
                codes = self.codes / (hits + more)  # FAULT
                self.codes.data.copy_(codes)
            return x + (found - x).detach()

    model = Codebook()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step(i: int) -> None:
        optimizer.zero_grad()
        model(torch.randn(32, 64) * (i != bad_call)).square().mean().backward()
        optimizer.step()

    finding = finding_of(model, step)
    assert finding is not None and finding.culprit is not None
    assert (finding.culprit.op, finding.culprit.file, finding.culprit.line) == ("aten.div", *marked_line(Codebook))
    assert (finding.step, finding.site.slot) == (bad_call, "codes")


@pytest.mark.parametrize("level", ["modules", "sentinel"])
def test_what_a_model_s_own_check_refuses_is_named(level: str) -> None:
    """An assertion within the forward, before any module has returned what is bad."""

    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.layer(x)
            h = h * x.abs() / (x.abs().sum(1, keepdim=True))  # FAULT
            assert h.isfinite().all(), "not finite"
            return h

    model = Checked()
    with quiet(), pytest.raises(AssertionError, match="not finite"), numscope.watch(model, level=level) as scope:
        for i in range(4):
            model(torch.randn(3, 4) * (i != 2)).sum().backward()
    (finding,) = scope.findings
    assert finding.culprit is not None
    assert (finding.culprit.op, finding.culprit.file, finding.culprit.line) == ("aten.div", *marked_line(Checked))
    assert finding.note.startswith("the script ended with AssertionError: not finite")


def test_model_that_raises_for_another_reason_is_no_finding() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf"))
            h: Tensor = self.layer(x) @ (mask.softmax(-1))
            if x.shape[0] == 2:
                raise ValueError("a batch of two")
            return h

    model = Picky()
    with quiet(), pytest.raises(ValueError, match="of two"), numscope.watch(model) as scope:
        for size in (3, 3, 2):
            model(torch.randn(size, 4)).sum().backward()
    assert not scope.findings and not scope.fault


@pytest.mark.parametrize("filled", [False, True])
def test_memory_that_is_filled_after_its_tensor_was_made_is_judged_as_it_is(filled: bool) -> None:
    """As checkpoints of torch's older format are loaded: the tensor first, over memory with anything in it, then what it holds."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD([*model[0].parameters(), *model[2].parameters()], 0.01)

    def step(i: int) -> None:
        if i == BAD_STEP:
            memory = torch.UntypedStorage(16)
            ctypes.memset(memory.data_ptr(), 0xFF, 16)  # nan
            model[1].running_mean = torch.empty(0).set_(memory, 0, (4,), (1,))
            if filled:
                ctypes.memset(memory.data_ptr(), 0, 16)
        trained(model, optimizer, torch.randn(8, 4))

    assert (finding_of(model, step) is None) is filled


def test_memory_that_was_freed_is_not_taken_again() -> None:
    """As sharded models and saved activations free theirs."""
    memory = torch.UntypedStorage(16)
    record = StorageRecord(weakref.ref(memory))
    region: Region = (0, torch.float32, ((1, 4),))
    ctypes.memset(memory.data_ptr(), 0xFF, 16)
    assert copies._is_bad_still(record, region, is_held=False)
    memory.resize_(0)
    assert not copies._is_bad_still(record, region, is_held=False) and memory.nbytes() == 0
