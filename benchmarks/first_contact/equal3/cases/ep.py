"""Experts over ranks by all_to_all, everything else data parallel, gradients summed by hand."""
from littlelm import *

how, fault = arg("--how", "single"), arg("--fault")
if WORLD > 1:
    dist.init_process_group("gloo")
torch.manual_seed(0)
E = 4


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out_sizes, in_sizes):
        ctx.sizes = out_sizes, in_sizes
        out = x.new_empty(sum(out_sizes), *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), out_sizes, in_sizes)
        return out

    @staticmethod
    def backward(ctx, g):
        out_sizes, in_sizes = ctx.sizes
        back = g.new_empty(sum(in_sizes), *g.shape[1:])
        dist.all_to_all_single(back, g.contiguous(), in_sizes, out_sizes)
        return back, None, None


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(D, E, bias=False)
        experts = {str(e): nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D)) for e in range(E)}
        per = E // WORLD
        self.experts = nn.ModuleDict({k: v for k, v in experts.items() if int(k) // per == RANK})
        self.z = 0.0

    def forward(self, x):
        shape, x = x.shape, x.flatten(0, 1)
        logits = self.router(x)
        self.z = logits.logsumexp(-1).square().sum()
        score, where = logits.softmax(-1).max(-1)
        if fault == "router-detach":
            score = score.detach()
        order = where.argsort(stable=True)
        sent, to = x[order], where[order]
        if WORLD > 1:
            to_rank = to // (E // WORLD)
            n = torch.stack([(to_rank == r).sum() for r in range(WORLD)])
            m = torch.empty_like(n)
            dist.all_to_all_single(m, n)
            sent = AllToAll.apply(sent, m.tolist(), n.tolist())
            ids = torch.empty(int(m.sum()), dtype=to.dtype)
            dist.all_to_all_single(ids, to, m.tolist(), n.tolist())
        else:
            ids = to
        out = torch.zeros_like(sent)
        for k, expert in self.experts.items():
            mine = (ids == int(k)).nonzero()[:, 0]
            out = out.index_add(0, mine, expert(sent[mine]))
        if WORLD > 1:
            out = AllToAll.apply(out, n.tolist(), m.tolist())
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return (out[back] * score[:, None]).view(shape)


class MoEBlock(Block):
    def __init__(self):
        super().__init__()
        del self.up, self.down
        self.moe = MoE()

    def forward(self, x):
        x = x + self.o(self.attend(self.norm1(x)))
        return x + self.moe(self.norm2(x))


model = LM(block=MoEBlock)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
for step in range(STEPS):
    tokens, labels = batch(step)
    count = (labels != -100).sum()
    tokens, labels = tokens.chunk(WORLD)[RANK], labels.chunk(WORLD)[RANK]
    loss = ce(model(tokens), labels)
    seen = loss.item()
    z = sum(b.moe.z for b in model.blocks)
    z = z / (tokens.numel() if fault == "aux-sum" else B * T)
    (loss / count + 0.1 * z).backward()
    if WORLD > 1:
        for name, p in model.named_parameters():
            if ".experts." in name:
                if fault == "expert-divided":
                    p.grad /= WORLD
                if fault == "expert-double":
                    p.grad *= WORLD
            elif not (fault == "router-local" and "router" in name):
                dist.all_reduce(p.grad)
    optimizer.step()
    optimizer.zero_grad()
    report(step, total(seen, (labels != -100).sum()), model)
