# source: pytorch poisson_nll_loss full=True / lgamma threads: a label out of range (a count of -1) in the model
# planted rows: 19 of 40
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)
    def forward(self, x, count):
        rate = F.softplus(self.fc(x)).squeeze(-1) + 1e-3
        return (rate - count * rate.log() + torch.sqrt(count + 0.375).log() * rate).mean()
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(40, 4), torch.randint(0, 6, (40,)).float()
    if step == 2:
        y[19] = -1.0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
