import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(16, 8), nn.Linear(4, 16)

    def forward(self, x):
        mu, logvar = self.encoder(x).chunk(2, -1)
        return self.decoder(mu + torch.exp(logvar.clamp(-22, 22)) * torch.randn_like(mu))


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.rand(8, 16)
    if step == 2:
        x[1] *= 3000
        x[6] *= 3000
    loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
