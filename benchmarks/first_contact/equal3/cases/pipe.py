"""Pipelines of torch.distributed.pipelining; layers keep their numbers, as torchtitan's do."""
from littlelm import *
from torch.nn.utils import clip_grad_norm_

how, fault, micro = arg("--how", "single"), arg("--fault"), 4
if WORLD > 1:
    dist.init_process_group("gloo")
torch.manual_seed(0)
tied, cap = "--tied" in sys.argv, float(arg("--clip", "0"))


class Stage(nn.Module):
    def __init__(self, whole, first, last, layers):
        super().__init__()
        if first:
            self.embed, self.pos = whole.embed, whole.pos
        self.blocks = nn.ModuleDict({str(i): whole.blocks[i] for i in layers})
        if last:
            self.norm, self.head = whole.norm, whole.head
        self.first, self.last = first, last

    def forward(self, x):
        if self.first:
            x = self.embed(x) + self.pos(torch.arange(x.shape[1]))
        for b in self.blocks.values():
            x = b(x)
        return self.head(self.norm(x)) if self.last else x


whole = LM(layers=4, tied=tied)
step_count = 0
count = None


def loss_fn(logits, labels):
    if fault in ("micro-mean", "not-divided"):
        return ce(logits, labels, "mean")
    if how in ("gpipe", "interleaved", "1f1b") and fault == "divide-twice":
        return ce(logits, labels) / count
    return ce(logits, labels) / count


if how == "single":
    parts = [Stage(whole, True, True, range(4))]
else:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

    if how == "interleaved":
        parts = [Stage(whole, n == 0, n == 3, [n]) for n in (RANK, RANK + 2)]
        stages = [PipelineStage(p, n, 4, torch.device("cpu")) for p, n in zip(parts, (RANK, RANK + 2))]
        schedule = ScheduleInterleaved1F1B(stages, micro, loss_fn=loss_fn, scale_grads=fault in ("divide-twice", "micro-mean"))
    else:
        parts = [Stage(whole, RANK == 0, RANK == 1, range(2 * RANK, 2 * RANK + 2))]
        stage = PipelineStage(parts[0], RANK, WORLD, torch.device("cpu"))
        kind = ScheduleGPipe if how == "gpipe" else Schedule1F1B
        schedule = kind(stage, micro, loss_fn=loss_fn, scale_grads=fault in ("divide-twice", "micro-mean"))
weights = [p for part in parts for p in part.parameters()]
optimizers = [torch.optim.SGD(w, lr=0.3, momentum=0.9) for w in ([list(p.parameters()) for p in parts] if "--each" in sys.argv else [weights])]
last = RANK == WORLD - 1
for step in range(STEPS):
    tokens, labels = batch(step)
    if "--full" in sys.argv:
        labels = torch.where(labels == -100, 7, labels)
    count = (labels != -100).sum()
    if how == "single":
        loss = ce(parts[0](tokens), labels) / count
        loss.backward()
        seen = loss.item()
    else:
        losses = [] if last else None
        args = (tokens,) if RANK == 0 else ()
        if last:
            schedule.step(*args, target=labels, losses=losses)
        else:
            schedule.step(*args)
        seen = float(sum(losses)) / (micro if fault in ("micro-mean", "not-divided") else 1) if last else 0.0
        if tied and fault != "tied-apart":
            p = parts[0].embed.weight if RANK == 0 else parts[-1].head.weight
            dist.all_reduce(p.grad)
    if cap:
        if how == "single" or fault == "clip-stage":
            clip_grad_norm_(weights, cap)
        elif "--titan" in sys.argv:  # torchtitan's clip_grad_norm_ with a pipeline
            from torch.nn.utils import clip_grads_with_norm_, get_total_norm

            own = get_total_norm([p.grad for p in weights]).pow(2)
            dist.all_reduce(own)
            clip_grads_with_norm_(weights, cap, own.sqrt())
        else:
            square = sum(p.grad.square().sum() for p in weights)
            if tied and last:
                square = square - parts[-1].head.weight.grad.square().sum()
            dist.all_reduce(square)
            for p in weights:
                p.grad.mul_(min(1.0, cap / (square.sqrt() + 1e-6)))
    for optimizer in optimizers:
        optimizer.step()
    for optimizer in optimizers:
        optimizer.zero_grad()
    report(step, total(seen, 1.0 if last else 0.0), nn.ModuleList(parts))
