"""Tensor parallel by hand (Megatron's f and g), with --sp (norms on sequence shards), or --dtensor by torch's parallelize_module."""
from littlelm import *

how, fault = arg("--how", "single"), arg("--fault")
if WORLD > 1:
    dist.init_process_group("gloo")
torch.manual_seed(0)


def gather1(x):
    out = [torch.empty_like(x) for _ in range(WORLD)]
    dist.all_gather(out, x.contiguous())
    return torch.cat(out, 1)


def summed(x):
    x = x.clone()
    dist.all_reduce(x)
    return x


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return summed(g)


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return summed(x)

    @staticmethod
    def backward(ctx, g):
        return summed(g) if fault == "sum-both" else g


class Gather(torch.autograd.Function):
    """Sequence shards in, the whole out; its gradient is summed over ranks and split."""

    @staticmethod
    def forward(ctx, x):
        return gather1(x)

    @staticmethod
    def backward(ctx, g):
        return summed(g).chunk(WORLD, 1)[RANK]


class GatherOut(torch.autograd.Function):
    """In front of a loss that every rank computes as a whole."""

    @staticmethod
    def forward(ctx, x):
        return gather1(x)

    @staticmethod
    def backward(ctx, g):
        return (summed(g) if fault == "gather-sum" else g).chunk(WORLD, 1)[RANK]


class ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return summed(x).chunk(WORLD, 1)[RANK].contiguous()

    @staticmethod
    def backward(ctx, g):
        return gather1(g)


class Split(Block):
    def cut(self):
        for name in ("q", "k", "v", "up"):
            m = getattr(self, name)
            m.weight = nn.Parameter(m.weight.detach().chunk(WORLD, 0)[RANK].clone())
            m.bias = nn.Parameter(m.bias.detach().chunk(WORLD, 0)[RANK].clone())
        for name in ("o", "down"):
            m = getattr(self, name)
            m.weight = nn.Parameter(m.weight.detach().chunk(WORLD, 1)[RANK].clone())

    def row(self, m, x):
        join = ReduceScatter.apply if how == "sp" else Sum.apply
        if fault == "bias-twice" and m is self.down:
            return join(F.linear(x, m.weight, m.bias))
        return join(F.linear(x, m.weight)) + m.bias

    def forward(self, x):
        begin = Gather.apply if how == "sp" else Copy.apply
        x = x + self.row(self.o, self.attend(begin(self.norm1(x))))
        h = self.norm2(x)
        h = h if fault == "no-copy" else begin(h)
        return x + self.row(self.down, F.gelu(self.up(h)))


class SeqLM(LM):
    def forward(self, tokens):
        positions = torch.arange(T)
        if how == "sp":
            tokens, positions = tokens.chunk(WORLD, 1)[RANK], positions.chunk(WORLD)[RANK]
        x = self.trunk(tokens, positions)
        return self.head(GatherOut.apply(x) if how == "sp" else x)


if how == "single" or how == "dtensor":
    model = LM()
else:
    model = SeqLM(block=Split)
    for b in model.blocks:
        b.cut()
if how == "dtensor":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",))
    plan = {f"blocks.{i}.{n}": ColwiseParallel() for i in range(2) for n in ("q", "k", "v", "up")}
    plan |= {f"blocks.{i}.{n}": RowwiseParallel() for i in range(2) for n in ("o", "down")}
    plan |= {"embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()), "head": ColwiseParallel(output_layouts=Replicate())}
    if fault == "wrong-layout":
        plan["blocks.1.down"] = RowwiseParallel(output_layouts=Replicate(), input_layouts=Shard(-1), use_local_output=True)
    parallelize_module(model, mesh, plan)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
for step in range(STEPS):
    tokens, labels = batch(step)
    logits = model(tokens)
    loss = ce(logits, labels, "mean")
    seen = loss.item()
    if fault == "tp-sum":
        loss = loss * WORLD
    if fault == "tp-z" or "--z" in sys.argv:
        z = 0.05 * logits.logsumexp(-1).square().mean()
        loss = loss + (z * WORLD if fault == "tp-z" else z)
    loss.backward()
    if how == "sp":
        for name, p in model.named_parameters():
            partial = "norm" in name or name in ("embed.weight", "pos.weight") or name.endswith(("o.bias", "down.bias"))
            if fault == "sp-bias" and name.endswith(("o.bias", "down.bias")):
                partial = False
            if partial:
                dist.all_reduce(p.grad)
                if fault == "norm-avg" and "norm" in name:
                    p.grad /= WORLD
    optimizer.step()
    optimizer.zero_grad()
    report(step, seen, model)
