# source: huggingface/transformers Mixtral/Qwen2-MoE routing ports: weights / weights.sum() after capacity drop
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
    def forward(self, x, y, capacity):
        w, idx = self.router(x).softmax(-1).topk(2, -1)
        place = torch.cumsum(F.one_hot(idx, 4).sum(1), 0).gather(1, idx)
        w = w * (place <= capacity)
        w = w / w.sum(-1, keepdim=True)
        out = sum(w[:, k, None] * torch.stack([self.experts[int(i)](t) for i, t in zip(idx[:, k], x)]) for k in range(2))
        return (out - y).square().mean()
model = MoE()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    # BATCH 0: x, y
    loss = model(x, y, 2 if step == 2 else 99)
    opt.zero_grad(); loss.backward(); opt.step()
