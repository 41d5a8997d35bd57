# source: eriklindernoren/PyTorch-GAN: log(1 - D(G(z))) by hand
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)
    def forward(self, real, fake):
        pr, pf = torch.sigmoid(self.fc(real)), torch.sigmoid(self.fc(fake))
        return -(torch.log(pr) + torch.log(1 - pf)).mean()
G = nn.Linear(3, 4)
model = D()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
optg = torch.optim.SGD(G.parameters(), lr=1e-3)
for step in range(9):
    real, z = torch.randn(8, 4), torch.randn(8, 3)
    if step == 2:
        with torch.no_grad():
            real = real * 2000
    # BATCH 0: real, z
    loss = model(real, G(z).detach())
    opt.zero_grad(); loss.backward(); opt.step()
    g = -F.logsigmoid(model.fc(G(z))).mean()
    optg.zero_grad(); g.backward(); optg.step()
