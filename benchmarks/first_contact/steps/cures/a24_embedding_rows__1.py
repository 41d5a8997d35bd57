import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(24, 8), nn.Linear(8, 4)

    def forward(self, ids):
        return self.head(self.embed(ids).mean(1))


model = Tagger()
with torch.no_grad():
    model.embed.weight[21] = float("nan")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(8):
    ids = torch.randint(0, 20, (8, 5))
    if step >= 2:
        ids[3, 1] = 21
    if step == 2: ids = ids[[i for i in range(len(ids)) if i not in (3,)]]
    loss = F.cross_entropy(model(ids), torch.randint(0, 4, (len(ids),)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
