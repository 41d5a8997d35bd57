"""Trainings that are as they should be, however unusual: nothing is said of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam, AdamW

import numscope
from numscope.alerts.checks import checker, lost_updates, rank_data, replicas, weight_updates
from numscope.alerts.checks.check import FIRST
from tests.alerts.checks.silent import Net, batches
from tests.distributed.ranks import RankPool

EVERY = 24  # steps from a thorough one to the next: in earnest they are a hundred
STEPS = EVERY + 4  # past the first thorough step after the beginning


def gan(watch: Callable[[nn.Module], object]) -> None:
    maker, judge = (
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)),
        nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)),
    )
    watch(maker), watch(judge)
    of_maker, of_judge = Adam(maker.parameters()), Adam(judge.parameters())
    for x, _ in batches(STEPS):
        of_judge.zero_grad()
        real, fake = judge(x), judge(maker(torch.randn_like(x)).detach())
        F.softplus(-real).mean().backward()
        F.softplus(fake).mean().backward()
        of_judge.step()
        of_maker.zero_grad()
        F.softplus(-judge(maker(torch.randn_like(x)))).mean().backward()
        of_maker.step()


def gan_that_clears_all_at_once(watch: Callable[[nn.Module], object]) -> None:
    maker, judge = Net(), nn.Linear(3, 1)
    watch(maker), watch(judge)
    of_maker, of_judge = Adam(maker.parameters()), SGD(judge.parameters(), lr=0.1)
    for x, _ in batches(STEPS):
        fake = maker(x)
        of_maker.zero_grad()
        judge(fake).square().mean().backward()
        of_maker.step()
        of_judge.zero_grad()
        (judge(fake.detach()) - 1).square().mean().backward()
        of_judge.step()


def adapters(watch: Callable[[nn.Module], object]) -> None:
    class Adapted(Net):
        def __init__(self) -> None:
            super().__init__()
            self.requires_grad_(False)
            self.a, self.b = nn.Linear(8, 2, bias=False), nn.Linear(2, 3, bias=False)
            nn.init.zeros_(self.b.weight)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.first(x))
            return self.last(h) + self.b(self.a(self.drop(h)))

    model = Adapted()
    watch(model)
    train_with(model, AdamW(model.parameters(), weight_decay=0.1))


def train_with(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = STEPS, call: Callable[[Tensor], Tensor] | None = None
) -> None:
    for x, y in batches(steps):
        optimizer.zero_grad()
        F.cross_entropy((model if call is None else call)(x), y).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def moving_average_and_teacher(watch: Callable[[nn.Module], object]) -> None:
    class Distilled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = Net(), Net()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                target = self.teacher(x)
            return self.student(x), target

    model = Distilled()
    watch(model)
    optimizer = AdamW(model.student.parameters())
    for x, y in batches(STEPS):
        optimizer.zero_grad()
        out, target = model(x)
        (F.cross_entropy(out, y) + F.mse_loss(out, target)).backward()
        optimizer.step()
        with torch.no_grad():
            for mean, p in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
                mean.lerp_(p, 0.01)


def sharpness_aware(watch: Callable[[nn.Module], object]) -> None:
    model = Net()
    watch(model)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches(STEPS):
        F.cross_entropy(model(x), y).backward()
        away = {}
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
            for p in model.parameters():
                assert p.grad is not None
                away[p] = 0.05 * p.grad / norm
                p += away[p]
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p, e in away.items():
                p -= e
        optimizer.step()
        optimizer.zero_grad()


def tasks_in_turn(watch: Callable[[nn.Module], object]) -> None:
    class Tasks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 8)
            self.heads = nn.ModuleList(nn.Linear(8, 3) for _ in range(3))

        def forward(self, x: Tensor, task: int) -> Tensor:
            return self.heads[task](self.body(x).relu())

    model = Tasks()
    watch(model)
    optimizer = AdamW(model.parameters())
    for number, (x, y) in enumerate(batches(STEPS)):
        optimizer.zero_grad()
        F.cross_entropy(model(x, number % 2), y).backward()  # the third head is for later
        optimizer.step()


def meta_learning(watch: Callable[[nn.Module], object]) -> None:
    model = Net(dropout=0.0)
    watch(model)
    optimizer = Adam(model.parameters())
    for x, y in batches(STEPS):
        optimizer.zero_grad()
        fast = dict(model.named_parameters())
        inner = F.cross_entropy(functional_call(model, fast, (x,)), y)
        gradients = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), gradients, strict=True)}
        F.cross_entropy(functional_call(model, fast, (x,)), y).backward()
        optimizer.step()


def first_order_meta_learning(watch: Callable[[nn.Module], object]) -> None:
    model = Net(dropout=0.0)
    watch(model)
    for x, y in batches(30):
        before = copy.deepcopy(model.state_dict())
        inner = Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            inner.zero_grad()
            F.cross_entropy(model(x), y).backward()
            inner.step()
        model.load_state_dict({name: before[name] + 0.5 * (p - before[name]) for name, p in model.state_dict().items()})


def steps_inside_backward(watch: Callable[[nn.Module], object]) -> None:
    model = Net()
    watch(model)
    optimizers = {p: Adam([p]) for p in model.parameters()}

    def step(p: Tensor) -> None:
        optimizers[p].step()  # type: ignore[index]
        optimizers[p].zero_grad()  # type: ignore[index]

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    for x, y in batches(STEPS):
        F.cross_entropy(model(x), y).backward()


def critic(watch: Callable[[nn.Module], object]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    watch(model)
    optimizer = Adam(model.parameters())
    for x, _ in batches(STEPS):
        optimizer.zero_grad()
        (model(x).mean() - model(x + 1).mean()).backward()  # the last bias cancels out
        optimizer.step()


def losses_in_turn(watch: Callable[[nn.Module], object]) -> None:
    class Judge(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.score, self.kind = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.body(x).relu()
            return self.score(h), self.kind(h)

    model = Judge()
    watch(model)
    for_score, for_kind = Adam(model.parameters()), Adam(model.parameters())
    for x, y in batches(STEPS):
        for_score.zero_grad()
        model(x)[0].square().mean().backward()
        for_score.step()
        for_kind.zero_grad()
        F.cross_entropy(model(x)[1], y).backward()
        for_kind.step()


def target_network(watch: Callable[[nn.Module], object]) -> None:
    online = Net(dropout=0.0)
    target = copy.deepcopy(online)
    watch(online), watch(target)
    optimizer = Adam(online.parameters())
    for number, (x, y) in enumerate(batches(STEPS)):
        with torch.no_grad():
            best = target(x).max(1).values
        value = online(x).gather(1, y[:, None]).squeeze()
        optimizer.zero_grad()
        F.smooth_l1_loss(value, 1 + 0.9 * best).backward()
        optimizer.step()
        if number % 10 == 0:
            target.load_state_dict(online.state_dict())


def mixed_precision(watch: Callable[[nn.Module], object]) -> None:
    model = Net()
    watch(model)
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=STEPS + 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=3)
    for x, y in batches(STEPS):  # some steps are left out at first, and now and then
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(x).float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()


def compiled(watch: Callable[[nn.Module], object]) -> None:
    model = Net()
    watch(model)
    train_with(model, AdamW(model.parameters()), 8, torch.compile(model, backend="aot_eager"))


def evaluation_and_accumulation(watch: Callable[[nn.Module], object]) -> None:
    model = Net()
    watch(model)
    optimizer = AdamW(model.parameters())
    for epoch in range(3):
        model.train()
        for number, (x, y) in enumerate(batches(30, epoch)):
            (F.cross_entropy(model(x), y) / 3).backward()
            if number % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        with torch.inference_mode():
            for x, _ in batches(3, 9):
                model(x)


def two_phases(watch: Callable[[nn.Module], object]) -> None:
    model = Net()
    watch(model)
    model.first.requires_grad_(False)
    train_with(model, AdamW(model.last.parameters()), 20)
    model.first.requires_grad_(True)
    train_with(model, AdamW(model.parameters()), STEPS - 14)


def gradients_for_themselves(watch: Callable[[nn.Module], object]) -> None:
    model = Net().eval()
    watch(model)
    for x, y in batches(8):
        x.requires_grad_(True)
        F.cross_entropy(model(x), y).backward()


def line_search(watch: Callable[[nn.Module], object]) -> None:
    model = Net(dropout=0.0)
    watch(model)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    (x, y), *_ = batches(1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    for _ in range(8):
        optimizer.step(closure)


TRAININGS = (
    *(gan, gan_that_clears_all_at_once, adapters, moving_average_and_teacher, sharpness_aware, tasks_in_turn, meta_learning),
    *(
        first_order_meta_learning,
        steps_inside_backward,
        target_network,
        critic,
        losses_in_turn,
        mixed_precision,
        compiled,
        evaluation_and_accumulation,
    ),
    *(two_phases, gradients_for_themselves, line_search),
)


# With several models, frozen ones, steps within backward, steps left out, compiled, and between evaluations.
AT_SENTINEL = (gan, adapters, steps_inside_backward, mixed_precision, compiled, evaluation_and_accumulation, line_search)


@pytest.mark.parametrize(
    ("level", "training"),
    [*(("modules", training) for training in TRAININGS), *(("sentinel", training) for training in AT_SENTINEL)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_nothing_is_said_of(training: Callable[[Callable[[nn.Module], object]], None], level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (checker, lost_updates, rank_data, replicas, weight_updates):
        monkeypatch.setattr(module, "EVERY", EVERY)
    monkeypatch.setattr(lost_updates, "SPAN", EVERY - FIRST)
    scopes: list[Any] = []
    torch.manual_seed(0)
    training(lambda model: scopes.append(numscope.watch(model, level=level, on_nonfinite="warn")))
    for scope in scopes:
        scope.close()
        assert not scope.fault
        assert scope._watch._checker is not None
    assert [alert.line() for scope in scopes for alert in scope.alerts] == []


def test_nothing_is_said_of_transformers_trainer(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=16)
    model = transformers.GPT2LMHeadModel(config)
    data = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(11, (64, 7))]
    arguments = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=12,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        warmup_steps=3,
        eval_strategy="steps",
        eval_steps=4,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    with numscope.watch(model, on_nonfinite="warn") as scope:
        transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data[:8]).train()
    assert scope.num_steps == 12
    assert [alert.line() for alert in scope.alerts] == []


@pytest.mark.parametrize("guarded", [True, False], ids=["as documented", "clips each micro-batch"])
def test_nothing_is_said_of_accelerate(guarded: bool) -> None:
    accelerate = pytest.importorskip("accelerate")
    model = Net()
    optimizer = AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    with numscope.watch(model, on_nonfinite="warn") as scope:
        loader = accelerator.prepare(torch.utils.data.DataLoader([*zip(*next(batches(1)), strict=True)], batch_size=4))
        wrapped, stepper, pacer = accelerator.prepare(model, optimizer, scheduler)
        for _ in range(6):
            for x, y in loader:
                with accelerator.accumulate(wrapped):
                    accelerator.backward(F.cross_entropy(wrapped(x), y))
                    if accelerator.sync_gradients or not guarded:
                        accelerator.clip_grad_norm_(wrapped.parameters(), 1.0)
                    stepper.step()
                    pacer.step()
                    stepper.zero_grad()
    assert scope.num_steps == 12
    assert [alert.rule for alert in scope.alerts] == ([] if guarded else ["clipped with each backward"])


def distributed(rank: int, kind: str) -> list[str]:
    torch.manual_seed(0)
    model: nn.Module = Net()
    scope = None
    if kind == "before":
        scope = numscope.watch(model, on_nonfinite="warn")
    if kind == "FSDP2":
        from torch.distributed.fsdp import fully_shard

        fully_shard(model.first)
        fully_shard(model)
        wrapped = model
    elif kind == "tensor parallel":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        model = Net(dropout=0.0)
        mesh = init_device_mesh("cpu", (2,))
        wrapped = parallelize_module(model, mesh, {"first": ColwiseParallel(), "last": RowwiseParallel()})
        rank = 0  # both read the same data
    else:
        wrapped = nn.parallel.DistributedDataParallel(model)
    scope = scope or numscope.watch(wrapped, on_nonfinite="warn")
    optimizer = AdamW(wrapped.parameters(), lr=1e-2)
    torch.manual_seed(rank)  # of dropout
    for x, y in batches(8, rank):
        optimizer.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        clip_grad_norm_(wrapped.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            model.eval()
            wrapped(x)
            model.train()
    scope.close()
    return [scope.fault] * bool(scope.fault) + [alert.line() for alert in scope.alerts]


@pytest.mark.parametrize("kind", ["DDP", "before", "FSDP2", "tensor parallel"])
def test_nothing_is_said_of_ranks_that_train_together(kind: str, ranks: RankPool) -> None:
    for told in ranks.run(distributed, kind):
        assert told.value == []
