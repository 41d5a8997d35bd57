# source: pytorch/pytorch#41663-like: gumbel noise -log(-log(u)) in float16, u rounds to 0 or 1
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(6, 64), nn.Linear(64, 3)
    def forward(self, x, y):
        logits = self.fc(x)
        u = torch.rand_like(logits.float()).to(logits.dtype)
        g = -torch.log(-torch.log(u))
        return F.cross_entropy(self.out((logits + g).softmax(-1)).float(), y)
model = Net().to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(4 if step != 2 else 48, 6).to(torch.float16), torch.randint(0, 3, (4 if step != 2 else 48,))
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
