"""Benign: scaled_dot_product_attention with rows that are masked wholly gives zeros (since torch 2.5).
Source: pytorch/pytorch#131863, #133882."""
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(30, 16, padding_idx=0), nn.Linear(16, 48), nn.Linear(16, 2)

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        see = (ids != 0)[:, None, :].expand(-1, ids.shape[1], -1)
        bias = torch.zeros(see.shape).masked_fill(~see, float("-inf"))
        a = nn.functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], attn_mask=bias[:, None])
        return self.out(a.squeeze(1).mean(1))


net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(5):
    ids = torch.randint(1, 30, (4, 7))
    ids[3] = 0
    loss = nn.functional.cross_entropy(net(ids), torch.randint(2, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert loss.isfinite()
