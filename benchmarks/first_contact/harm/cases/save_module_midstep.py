"""torch.save of a whole module between forward, backward and step, and of module plus optimizer together.

source: wandb/wandb#5573, wandb/wandb#2588
"""
import torch
from torch import nn
from fcw import mlp, say, seed, watch

seed(2)
model = mlp()
watch(model)
opt = torch.optim.AdamW(model.parameters(), 1e-2)
for step in range(3):
    out = model(torch.randn(5, 8))
    torch.save(model, f"{step}-after-forward.pt")
    loss = out.pow(2).mean()
    loss.backward()
    torch.save({"model": model, "grads": [p.grad for p in model.parameters()]}, f"{step}-after-backward.pt", pickle_protocol=4)
    opt.step()
    opt.zero_grad()
    torch.save([model, opt], f"{step}-after-step.pt", pickle_protocol=5)
again = torch.load("2-after-step.pt", weights_only=False)[0]
say(type(again).__name__, [list(m._forward_hooks.values()) for m in again.modules()], torch.equal(again(torch.ones(1, 8)), model(torch.ones(1, 8))))
