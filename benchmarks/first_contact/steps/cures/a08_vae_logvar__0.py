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
        std = torch.exp(0.5 * logvar)
        z = mu + std * torch.randn_like(std)
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(-1)
        return F.mse_loss(self.decoder(z), x) + 0.01 * kl.mean()


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.rand(8, 16)
    if step == 2:
        x[4] *= 4000
    if step == 2: x = x[[i for i in range(len(x)) if i not in (4,)]]
    loss = model(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
