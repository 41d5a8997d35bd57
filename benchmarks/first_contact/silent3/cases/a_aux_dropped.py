"""The combined loss is built, and the function returns the reconstruction loss alone: the auxiliary head never learns.
Source: https://github.com/oclivegriffin/crosscode/pull/3
Truth: the auxiliary head's weights are the same bits at the end.
Could a tool know: yes: a module's output reaches no loss that is differentiated; its parameters in the optimizer get no gradient.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class TopKCoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(24, 64), nn.Linear(64, 24)
        self.aux_dec = nn.Linear(64, 24)

    def forward(self, x):
        h = self.enc(x).relu()
        v, i = h.topk(6, dim=-1)
        top = torch.zeros_like(h).scatter(-1, i, v)
        return self.dec(top), self.aux_dec(h - top)


def losses(model, x, log):
    rec, aux = model(x)
    reconstruction = nn.functional.mse_loss(rec, x)
    aux_loss = nn.functional.mse_loss(aux, (x - rec).detach())
    loss = reconstruction + 0.1 * aux_loss
    log["aux"] = aux_loss.item()
    return loss if HEALTHY else reconstruction


model = TopKCoder()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
before = model.aux_dec.weight.detach().clone()
mix = torch.randn(10, 24)
log = {}
for step in range(180):
    x = torch.randn(64, 10) @ mix * 0.3
    loss = losses(model, x, log)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} aux {log['aux']:.4f} aux head moved {(model.aux_dec.weight - before).abs().max():.2e}")
