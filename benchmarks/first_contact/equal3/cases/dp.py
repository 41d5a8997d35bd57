"""Data parallel: single | ddp | fsdp | hand | zro, with accumulation, tied embeddings, recomputation, clipping, compile."""
import contextlib

from littlelm import *
from torch.nn.utils import clip_grad_norm_

how, fault, accum = arg("--how", "single"), arg("--fault"), int(arg("--accum", "2"))
if WORLD > 1:
    dist.init_process_group("gloo")
torch.manual_seed(RANK if fault == "rank-seed" else 0)
tied = "--tied" in sys.argv
model = LM(tied=tied, recompute="--recompute" in sys.argv)
if fault == "untied":
    model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
core = model
if "--norm-f32-frozen" in sys.argv:
    for p in model.pos.parameters():
        p.requires_grad_(False)
if fault == "frozen-rank" and RANK == 1:
    core.embed.weight.requires_grad_(False)
if "--compile" in sys.argv:
    model.blocks = nn.ModuleList(torch.compile(b, backend="aot_eager") for b in model.blocks)
outside = None
if fault == "outside":
    head, core.head = core.head, nn.Identity()
    outside = head
if how == "ddp":
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view="--view" in sys.argv)
    if fault == "bf16-hook":
        def half(state, bucket):  # torch's bf16_compress_hook wants NCCL
            small = (bucket.buffer() / WORLD).bfloat16()
            return dist.all_reduce(small, async_op=True).get_future().then(lambda f: bucket.buffer().copy_(f.value()[0]))

        model.register_comm_hook(None, half)
    if fault == "sum-hook":
        def hook(state, bucket):
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])

        model.register_comm_hook(None, hook)
if how == "fsdp":
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (WORLD,))
    policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16) if fault == "bf16-reduce" else MixedPrecisionPolicy()
    ignored = {model.norm.weight, model.norm.bias} if fault == "ignored" else set()
    for b in model.blocks:
        fully_shard(b, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy, ignored_params=ignored)
    if fault == "divide-1":
        for m in model.modules():
            if hasattr(m, "set_gradient_divide_factor"):
                m.set_gradient_divide_factor(1.0)
lr = 0.3 * (WORLD if fault == "lr-scaled" else 1)
everything = list(model.parameters()) + (list(outside.parameters()) if outside else [])
decay = [p for p in everything if p.ndim > 1]
plain = [p for p in everything if p.ndim <= 1]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.1 if fault == "decay-norms" else 0.0}]
if how == "zro":
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(groups, torch.optim.AdamW, lr=0.01)
elif "--adam" in sys.argv:
    optimizer = torch.optim.AdamW(groups, lr=0.01)
else:
    optimizer = torch.optim.SGD(groups, lr=lr, momentum=0.9)
cap = float(arg("--clip", "0"))
cast = torch.autocast("cpu", torch.bfloat16) if "--autocast" in sys.argv else contextlib.nullcontext()

for step in range(STEPS):
    tokens, labels = batch(step)
    count = (labels != -100).sum()
    tokens, labels = tokens.chunk(WORLD)[RANK], labels.chunk(WORLD)[RANK]
    parts = list(zip(tokens.chunk(accum), labels.chunk(accum)))
    seen = 0.0
    if fault == "frozen-rank" and RANK == 1:
        core.embed.weight.requires_grad_(False)
    for i, (x, y) in enumerate(parts):
        if fault == "skip-last" and RANK == 1 and i == len(parts) - 1:
            with torch.no_grad():
                seen += ce(model(x) if how != "ddp" else core(x), y).item()
            continue
        last = i == len(parts) - 1
        quiet = not last
        if fault == "inverted":
            quiet = last
        if fault == "never-sync":
            quiet = True
        hush = model.no_sync() if how in ("ddp", "zro") and quiet else contextlib.nullcontext()
        if how == "fsdp" and "--hush" in sys.argv:
            model.set_requires_gradient_sync(last)
        with hush:
            with cast:
                logits = model(x) if outside is None else outside(model(x))
            loss = ce(logits.float(), y)
            seen += loss.item()
            n = (y != -100).sum()
            if fault == "micro-mean":
                loss = loss / n / accum
            elif fault == "rank-mean":
                loss = loss / (labels != -100).sum()
            elif fault == "no-world":
                loss = loss / count
            elif fault == "world-twice":
                loss = loss / count * WORLD * WORLD
            elif fault == "no-accum":
                loss = loss / count * WORLD * accum
            elif fault == "pad-counted":
                loss = loss / (B * T) * WORLD
            else:
                loss = loss / count * (WORLD if how in ("ddp", "fsdp", "zro") else 1)
            loss.backward()
    if how == "hand":
        if fault == "clip-first" and cap:
            clip_grad_norm_(model.parameters(), cap)
        for name, p in core.named_parameters():
            grad = p.grad if p.grad is not None else torch.zeros_like(p)
            dist.all_reduce(grad)
            if fault == "twice-norm" and name.startswith("norm."):
                dist.all_reduce(grad)
            p.requires_grad_(True)
            p.grad = grad
        if fault == "twice-tied":
            dist.all_reduce(core.embed.weight.grad)
    if cap and fault != "clip-first":
        if fault == "clip-local":
            norm = torch.stack([p.grad.to_local().norm() for p in model.parameters()]).norm()
            for p in model.parameters():
                p.grad.to_local().mul_(min(1.0, cap / (norm + 1e-6)))
        elif fault == "clip-each":
            for p in model.parameters():
                clip_grad_norm_([p], cap)
        else:
            clip_grad_norm_(everything, cap)
    optimizer.step()
    if not (fault == "no-zero" and WORLD > 1):
        optimizer.zero_grad()
    report(step, total(seen, (labels != -100).sum()), core)
