"""One small training in many layouts: healthy ones, and ones with a fault planted into how ranks, micro-batches or clipping add up."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

BATCH, LENGTH, WORDS, WIDTH, STEPS = 8, 6, 32, 16, 2
CLIP = 0.3  # well below the norm of all gradients


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return made


class Net(nn.Module):
    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(2))
        self.drop = nn.Dropout(drop) if drop else nn.Identity()
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)
        self.recompute = False

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        made: Tensor = self.head(self.norm(self.drop(x)))
        return made


class Placed(Net):
    """It is given the places of words too, as models are that add position embeddings."""

    def forward(self, words: Tensor, places: Tensor | None = None) -> Tensor:
        return super().forward(words)


def with_places(net: nn.Module) -> Callable[[Tensor], Tensor]:
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    return lambda words: net(words, torch.arange(LENGTH).chunk(world)[rank])


def batch(step: int, seed: int = 7, masked: bool = False) -> tuple[Tensor, Tensor]:
    drawn = torch.randint(0, WORDS, (2, BATCH, LENGTH), generator=torch.Generator().manual_seed(seed + step))
    if masked:
        drawn[1, : BATCH // 2, 2:] = -100
    return drawn[0], drawn[1]


def cross_of(out: Tensor, labels: Tensor, **options: Any) -> Tensor:
    return cross_entropy(out.flatten(0, 1), labels.flatten(), **options)


sgd = functools.partial(torch.optim.SGD, lr=0.1)


@dataclass
class Case:
    """A layout.

    Args:
        world: how many ranks.
        kind: of the verdict; None: it is healthy.
        first: the parameters that may be named; empty: any.
        says: words of the verdict.
        reference: the layout that it is compared with.
        make: makes the model ready; returns what is called.
        num: micro-batches of a rank.
        scale: by which a micro-batch's loss is multiplied.
        reduce: what a loop's own code does to gradients before clipping.
        clip: what it does to clip them.
        sync: whether DDP or FSDP2 reduces at a micro-batch.
        amp: whether the loop calls the model under autocast.
    """

    world: int = 1
    kind: str | None = None
    first: tuple[str, ...] = ()
    says: str = ""
    reference: str = "whole batch"
    make: Callable[[Net], Any] = lambda net: net
    num: int = 1
    scale: Callable[[int, int, int], float] = lambda rank, number, num: 1 / num
    reduce: Callable[[Net], None] = lambda net: None
    clip: Callable[[Net], Any] = lambda net: None
    sync: Callable[[int, int], bool] = lambda number, num: number == num - 1
    share: Callable[[Tensor, int, int], Tensor] = lambda rows, rank, world: rows.chunk(world)[rank]
    disturb: bool = False
    amp: bool = False
    clears: int = 0  # the micro-batch before which the loop clears gradients once more
    steps: int = STEPS
    net: Callable[[], Net] = Net
    optimizer: Callable[..., Any] = sgd
    masked: bool = False  # samples have other numbers of labels
    loss: Callable[[Tensor, Tensor], Tensor] = cross_of
    extra: dict[str, Any] = field(default_factory=dict)


def ddp(net: Net, **options: Any) -> Any:
    return nn.parallel.DistributedDataParallel(net, **options)


def hooked(net: Net, hook: Any) -> Any:
    made = ddp(net)
    made.register_comm_hook(None, hook)
    return made


# Without annotations: DDP compares these with classes.
sums: Any = lambda state, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])  # noqa: E731


def in_pairs(net: Net) -> None:
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad, group=groups[dist.get_rank() // 2])
    scaled(net, 0.5)


def a_third(net: Net) -> None:
    scaled(net, 1 / 3, "blocks.0.up.weight", "blocks.0.up.bias")


def in_turn(rows: Tensor, rank: int, world: int) -> Tensor:
    return rows[rank::world]


def autocast(net: Net) -> Any:
    forward = net.forward

    def low(words: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return forward(words)

    net.forward = low  # type: ignore[method-assign]
    return net


def in_dtype(dtype: torch.dtype) -> Any:
    """As torch's own hook for bfloat16 does, which wants NCCL."""

    def done(reduced: Any, bucket: Any) -> Tensor:
        return bucket.buffer().copy_(reduced.value()[0])

    def hook(state, bucket):  # type: ignore[no-untyped-def]
        low = bucket.buffer().to(dtype).div_(dist.get_world_size())
        return dist.all_reduce(low, async_op=True).get_future().then(lambda reduced: done(reduced, bucket))

    return hook


def fsdp(net: Net, **options: Any) -> Any:
    for block in net.blocks:
        fully_shard(block, **options)
    return fully_shard(net, **options)


def undivided(net: Net) -> Any:
    made = fsdp(net)
    for module in (made, *made.blocks):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    return made


def tensor_parallel(net: Net, mesh: Any = None) -> Any:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",)) if mesh is None else mesh
    for block in net.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return net


def two_axes(net: Net) -> Any:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    tensor_parallel(net, mesh["tp"])
    return fsdp(net, mesh=mesh["dp"])


class Copied(torch.autograd.Function):
    """Into a layer whose outputs are spread: its backward adds up what the ranks have."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, reduces: bool) -> Tensor:
        ctx.reduces = reduces
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        gradient = gradient.clone()
        if ctx.reduces:
            dist.all_reduce(gradient)
        return gradient, None


class Added(torch.autograd.Function):
    """Out of a layer whose inputs are spread."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, twice: bool) -> Tensor:
        ctx.twice = twice
        made = x.clone()
        dist.all_reduce(made)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * 2 if ctx.twice else gradient, None


def by_hand(net: Net, reduces: bool = True, twice: bool = False) -> Any:
    """Tensor parallelism with plain tensors, of the last block."""
    block, rank, world = net.blocks[1], dist.get_rank(), dist.get_world_size()
    block.up.weight, block.up.bias = (nn.Parameter(one.detach().chunk(world)[rank].clone()) for one in (block.up.weight, block.up.bias))
    block.down.weight = nn.Parameter(block.down.weight.detach().chunk(world, 1)[rank].clone())

    def forward(x: Tensor) -> Tensor:
        spread = torch.nn.functional.gelu(block.up(Copied.apply(block.norm(x), reduces)))
        return x + Added.apply(spread @ block.down.weight.t(), twice) + block.down.bias

    block.forward = forward
    return net


class Tied(Net):
    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.embed.weight


def low() -> Net:
    return Net().bfloat16()


def of_all_labels(out: Tensor, labels: Tensor) -> Tensor:
    """Divided by the number of labels of the whole batch, as it should be."""
    total = float((batch(0, masked=True)[1] != -100).sum())
    return cross_entropy(out.flatten(0, 1), labels.flatten(), reduction="sum") / total


def of_sequence(rows: Tensor, rank: int, world: int) -> Tensor:
    return rows.chunk(world, 1)[rank]


def everyone(rows: Tensor, rank: int, world: int) -> Tensor:
    return rows


def of_axis(rows: Tensor, rank: int, world: int) -> Tensor:
    return rows.chunk(2)[rank // 2]


def average(net: Net, *, but: str = "", twice: str = "", divide: float | None = None, dtype: Any = None) -> None:
    """As DDP does, parameter by parameter."""
    for name, parameter in net.named_parameters():
        if parameter.grad is None or name == but:
            continue
        given = parameter.grad.to(dtype) if dtype else parameter.grad.clone()
        dist.all_reduce(given)
        if name == twice:
            dist.all_reduce(given)
        parameter.grad = given.to(parameter.grad.dtype) / (dist.get_world_size() if divide is None else divide)


def scaled(net: Net, factor: float, *names: str) -> None:
    for name, parameter in net.named_parameters():
        if (not names or name in names) and parameter.grad is not None:
            parameter.grad.mul_(factor)


def clip(net: Net) -> None:
    nn.utils.clip_grad_norm_(net.parameters(), CLIP)


def clip_shards(net: Net) -> None:
    """By the norm of this rank's shards alone."""
    gradients = [p.grad.to_local() for p in net.parameters() if p.grad is not None]  # type: ignore[attr-defined]
    with standing_for(net, gradients) as locals_:
        nn.utils.clip_grad_norm_(locals_, CLIP)


@contextlib.contextmanager
def standing_for(net: Net, gradients: list[Tensor]) -> Iterator[list[nn.Parameter]]:
    made = [nn.Parameter(torch.empty_like(gradient)) for gradient in gradients]
    for one, gradient in zip(made, gradients, strict=True):
        one.grad = gradient
    yield made


def clip_each(net: Net) -> None:
    """Each parameter by its own norm: the recorder hears the first call alone."""
    for parameter in net.parameters():
        nn.utils.clip_grad_norm_([parameter], CLIP)


def clip_nothing(net: Net) -> None:
    nn.utils.clip_grad_norm_(iter(list(net.parameters())), CLIP)
    scaled(net, 3.0)  # put back, as by a scaler that is unscaled twice


def clip_largest(net: Net) -> None:
    nn.utils.clip_grad_norm_(net.parameters(), 0.01, norm_type=torch.inf)


def clip_early(net: Net) -> None:
    clip(net)
    average(net)


def frozen(net: Net) -> Any:
    net.blocks[1].up.weight.requires_grad_(False)
    return net


def zeroed(net: Net) -> None:
    scaled(net, 0.0, "blocks.0.norm.weight")


def compiled(net: Net) -> Any:
    return torch.compile(net, backend="aot_eager")


def recomputed(net: Net) -> Any:
    net.recompute = True
    return net


def changed(net: Net) -> Any:
    with torch.no_grad():
        net.blocks[0].up.weight[3] += 0.01
    return net


def other_on_a_rank(net: Net) -> Any:
    with torch.no_grad():
        net.blocks[0].up.weight += dist.get_rank()
    return net


def noisy(net: Net) -> None:
    for parameter in net.parameters():
        assert parameter.grad is not None
        parameter.grad.copy_(parameter.grad.bfloat16().float())


def twice_used(net: Net) -> Any:
    """The head's bias gets what a tied copy of it would give once more."""
    net.head.bias.register_hook(lambda gradient: gradient * 2)
    return net


def ignoring(net: Net, name: str) -> Any:
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, [name])
    return ddp(net)


@contextlib.contextmanager
def synchronized(called: Any, now: bool) -> Iterator[None]:
    if isinstance(called, nn.parallel.DistributedDataParallel) and not now:
        with called.no_sync():
            yield
        return
    if hasattr(called, "set_requires_gradient_sync"):
        called.set_requires_gradient_sync(now)
    yield
