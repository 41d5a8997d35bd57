"""healthy.py CASE: DDP of two ranks, nothing wrong. WATCH=1: watched, steps 1 and 3 done again, then closed. Prints digests and what hooks are left."""
import contextlib
import hashlib
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

CASE = sys.argv[1]
RANK = int(os.environ["RANK"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.norm, self.fc2, self.unused = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 8), nn.Linear(8, 8) if "unused" in CASE else nn.Identity()
        self.batch = nn.BatchNorm1d(16) if "batchnorm" in CASE else nn.Identity()
        self.drop = nn.Dropout(0.2 if "dropout" in CASE else 0.0)
        self.block = nn.Sequential(nn.Linear(16, 16), nn.GELU())
        self.head = nn.Linear(8, 16, bias=False)
        if "tied" in CASE:
            self.head.weight = self.fc2.weight if self.fc2.weight.shape == self.head.weight.shape else self.fc1.weight

    def forward(self, x):
        h = self.drop(self.batch(self.norm(self.fc1(x))).relu())
        if "checkpoint" in CASE:
            h = checkpoint(self.block, h, use_reentrant="reentrant" in CASE)
        else:
            h = self.block(h)
        return self.head(self.fc2(h))


def digest(tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b"")
    return h.hexdigest()[:16]


def hooks(models):
    found = []
    for m in models:
        for n, p in m.named_parameters():
            k = (len(p._backward_hooks or ()), len(p._post_accumulate_grad_hooks or ()))
            found.append((n, k))
        for n, s in m.named_modules():
            found.append((n, tuple(len(getattr(s, a)) for a in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"))))
    return found


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
if "frozen" in CASE:
    model.fc1.requires_grad_(False)
ddp = DDP(model, find_unused_parameters="unused" in CASE, static_graph="static" in CASE, gradient_as_bucket_view="view" in CASE, bucket_cap_mb=0.001 if "buckets" in CASE else None)
if "bf16hook" in CASE or "fp16hook" in CASE:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    ddp.register_comm_hook(None, default_hooks.bf16_compress_hook if "bf16" in CASE else default_hooks.fp16_compress_hook)
if "powersgd" in CASE:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    ddp.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
if "ownhook" in CASE:
    model.fc1.weight.register_hook(lambda g: g * 0.5)
    model.fc2.weight.register_post_accumulate_grad_hook(lambda p: p.grad.clamp_(-1, 1) is None or None)
models = [ddp]
if "gan" in CASE:
    critic = DDP(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1)))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    models.append(critic)
run = torch.compile(ddp, backend="aot_eager") if "compile" in CASE else ddp
if "inner" in CASE:
    optimizers = {p: torch.optim.SGD([p], lr=1e-3) for p in ddp.parameters()}

    def update(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    optimizer = None
else:
    optimizer = (torch.optim.SGD if "sgd" in CASE else torch.optim.AdamW)([p for p in ddp.parameters() if p.requires_grad], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled="scaler" in CASE)
before = hooks(models)
scope = None
if os.environ.get("WATCH"):
    import numscope

    scope = numscope.watch(ddp, check="again:at=1,3")
    if "gan" in CASE:
        scope2 = numscope.watch(critic, check="again:at=1,3")
generator = torch.Generator().manual_seed(100 + RANK)
outs = []
for step in range(6):
    parts = 3 if "nosync" in CASE else 1
    for part in range(parts):
        x, y = torch.randn(8, 8, generator=generator), torch.randint(0, 16, (8,), generator=generator)
        with ddp.no_sync() if part < parts - 1 else contextlib.nullcontext():
            with torch.autocast("cpu", dtype=torch.float16 if "half" in CASE else torch.bfloat16, enabled="autocast" in CASE):
                out = run(x)
            outs.append(out)
            loss = F.cross_entropy(out.float(), y) / parts
            if "gan" in CASE:
                critic_optimizer.zero_grad()
                (critic(out.detach()).mean() - critic(torch.randn(8, 16, generator=generator)).mean()).backward()
                critic_optimizer.step()
                critic.requires_grad_(False)
                loss = loss - critic(out).mean()
                critic.requires_grad_(True)
            if "twobackward" in CASE:
                with ddp.no_sync():
                    loss.backward(retain_graph=True)
                out.square().mean().backward()
            elif "retain" in CASE:
                loss.backward(retain_graph=True)
            elif "twoforward" in CASE:
                loss = loss + F.mse_loss(run(x + 0.1), out)
                loss.backward()
            elif "penalty" in CASE:
                xx = x.clone().requires_grad_()
                (g,) = torch.autograd.grad(ddp.module(xx).sum(), xx, create_graph=True)
                (loss + 0.01 * g.square().sum()).backward()
            else:
                scaler.scale(loss).backward()
    if optimizer:
        if "clip" in CASE:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(ddp.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none="keepzero" not in CASE)
if scope:
    scope.close()
    if "gan" in CASE:
        scope2.close()
print("DIGEST", RANK, digest(outs), digest(t for m in models for t in m.state_dict().values()))
print("HOOKS", RANK, "same" if hooks(models) == before else [a for a, b in zip(hooks(models), before) if a != b][:4])
dist.barrier()
dist.destroy_process_group()
