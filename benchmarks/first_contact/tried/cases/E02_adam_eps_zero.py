# source: pytorch forum: Adam(eps=0) with unused embedding rows, 0/0
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(20, 8), nn.Linear(8, 2)
    def forward(self, ids, y):
        return F.cross_entropy(self.head(self.emb(ids).mean(1)), y)
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3, eps=0.0)
for step in range(9):
    x, y = torch.randint(0, 15, (8, 4)), torch.randint(0, 2, (8,))
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
