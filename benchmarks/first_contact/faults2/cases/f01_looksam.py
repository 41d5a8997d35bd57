"""rollovd/LookSAM#1: perturbation g / g.norm() without epsilon, own SAM optimizer; timm ViT with a zero-initialised head
TRUTH op=aten.div reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

import timm
class SAM(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, rho=0.05):
        super().__init__(params, dict(lr=lr, rho=rho))
    @torch.no_grad()
    def perturb(self):
        eps = 1e-8 if CURED else 0.0
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None: continue
                e = group["rho"] * p.grad / (p.grad.norm(p=2) + eps)  # FAULT
                p.add_(e)
                self.state[p]["e"] = e
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None: continue
                p.sub_(self.state[p].pop("e"))
                p.add_(p.grad, alpha=-group["lr"])
model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=5)
nn.init.zeros_(model.head.weight)
opt = SAM(model.parameters())
for step in range(4):
    x, y = torch.randn(8, 3, 32, 32), torch.randint(0, 5, (8,))
    F.cross_entropy(model(x), y).backward()
    opt.perturb(); opt.zero_grad()
    loss = F.cross_entropy(model(x), y); loss.backward()
    opt.step(); opt.zero_grad()
    print(step, loss.item())
done(loss.detach(), model)
