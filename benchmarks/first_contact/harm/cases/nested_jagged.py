"""Jagged nested tensors through gated Linear layers and a norm with gradients, and strided nested tensors in evaluation.

source: pytorch/nestedtensor PR 274; torch docs, torch.nested
"""
import warnings
warnings.simplefilter("ignore")
import torch
from torch import nn
from fcw import rng, say, seed, sha, watch, weights

seed(19)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.norm(x + self.out(torch.sigmoid(q) * k + v.tanh()))


net = Net()
watch(net)
opt = torch.optim.AdamW(net.parameters(), 1e-2)
for step in range(3):
    x = torch.nested.nested_tensor([torch.randn(n, 8) for n in (3, 5, 2)], layout=torch.jagged)
    y = net(x)
    loss = y.values().square().mean() + y.values()[0].sum() * 0.01
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex(), y.is_nested, sha([p.grad for p in net.parameters()]))
enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
watch(enc)
with torch.no_grad():
    mask = torch.tensor([[False, False, True], [False, True, True]])
    say(sha(enc(torch.ones(2, 3, 8), src_key_padding_mask=mask)))
say(sha(weights(net)), rng())
