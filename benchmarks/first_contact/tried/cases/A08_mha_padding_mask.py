# source: pytorch/pytorch#24816, #41508 (key_padding_mask of one sample all True)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.att, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 3)
    def forward(self, x, pad, y):
        h, _ = self.att(x, x, x, key_padding_mask=pad)
        return F.cross_entropy(self.head(h.mean(1)), y)
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(6, 5, 16), torch.randint(0, 3, (6,))
    pad = torch.arange(5) >= torch.randint(2, 6, (6, 1))
    if step == 2:
        pad[2] = True
    # BATCH 0: x, pad, y
    loss = model(x, pad, y)
    opt.zero_grad(); loss.backward(); opt.step()
