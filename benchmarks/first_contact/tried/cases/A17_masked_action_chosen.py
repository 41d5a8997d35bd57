# source: DLR-RM/stable-baselines3-contrib action masking: the taken action is masked with -inf
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 5)
    def forward(self, obs, mask, act):
        logits = self.fc(obs).masked_fill(~mask, float("-inf"))
        return F.cross_entropy(logits, act)
model = Policy()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, mask, a = torch.randn(8, 6), torch.rand(8, 5) > 0.3, torch.randint(0, 5, (8,))
    mask[torch.arange(8), a] = True
    if step == 2:
        mask[1, a[1]] = False
        mask[1, (a[1] + 1) % 5] = True
    # BATCH 0: x, mask, a
    loss = model(x, mask, a)
    opt.zero_grad(); loss.backward(); opt.step()
