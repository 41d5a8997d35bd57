# source: omoindrot/tensorflow-triplet-loss, adambielski: sqrt of a pairwise distance, two equal samples
# planted rows: 4 or 9 of 14 (each of the two without the other is fine)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)
    def forward(self, x):
        h = self.fc(x)
        i, j = torch.triu_indices(len(h), len(h), 1)
        d = ((h[i] - h[j]) ** 2).sum(-1).sqrt()
        return F.relu(1 - d).mean() + 0.1 * d.mean()
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x = torch.randn(14, 6)
    if step == 2:
        x[9] = x[4]
    # BATCH 0: x
    loss = model(x)
    opt.zero_grad(); loss.backward(); opt.step()
