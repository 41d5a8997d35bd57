import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/google-research/text-to-text-transfer-transformer/issues/539
class LinRNN(nn.Module):
    def __init__(self):
        super().__init__(); self.i = nn.Linear(4, 8); self.a = nn.Parameter(torch.full((8,), 1.15)); self.o = nn.Linear(8, 1)
    def forward(self, x):
        h = x.new_zeros(x.shape[0], 8)
        for t in range(x.shape[1]): h = h * self.a + self.i(x[:, t])
        return self.o(F.layer_norm(h, (8,)))
model = LinRNN().half(); opt = torch.optim.SGD(model.parameters(), lr=1e-5)
for step in range(8):
    x = torch.randn(4, 20 if step < 3 else 100, 4).half()
    loss = (model(x).float() ** 2).mean(); opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
