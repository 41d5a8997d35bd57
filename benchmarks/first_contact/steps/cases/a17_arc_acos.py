import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Arc(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(5, 8))

    def forward(self, x, labels):
        cosine = F.normalize(x) @ F.normalize(self.centres).T
        angle = torch.acos(cosine)
        margin = 0.3 * F.one_hot(labels, 5)
        return F.cross_entropy(8 * torch.cos(angle + margin), labels)


model = Arc()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(8):
    x, labels = torch.randn(8, 8), torch.randint(0, 5, (8,))
    if step == 2:
        x[0] = model.centres.detach()[2] * 3.0
    loss = model(x, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
