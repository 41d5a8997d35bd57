# source: pytorch/pytorch#24816 in one's own attention, where what follows divides by the row sum again
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.head = nn.Linear(8, 8), nn.Linear(8, 2)
    def forward(self, x, mask, y):
        s = self.q(x) @ x.transpose(1, 2)
        s = s.masked_fill(~mask[:, None, :], float("-inf"))
        w = s.softmax(-1) * mask[:, None, :]
        w = w / w.sum(-1, keepdim=True)
        return F.cross_entropy(self.head((w @ x).mean(1)), y)
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(6, 5, 8), torch.randint(0, 2, (6,))
    mask = torch.ones(6, 5, dtype=torch.bool)
    if step == 2:
        mask[4] = False
    # BATCH 0: x, mask, y
    loss = model(x, mask, y)
    opt.zero_grad(); loss.backward(); opt.step()
