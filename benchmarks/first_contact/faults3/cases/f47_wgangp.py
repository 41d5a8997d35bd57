"""WGAN-GP whose penalty takes a root by hand; the critic of an inpainting GAN sees a mask without a hole.
Source: irfanICMLL/structure_knowledge_distillation#21 (sqrt in the gradient penalty), pytorch/pytorch#2534."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(47)
EPS = 1e-12 if "--cured" in sys.argv else 0.0


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 9, 1))

    def forward(self, x, hole):
        return self.net(x * hole).squeeze(1)


generator = nn.Sequential(nn.Linear(8, 64), nn.LeakyReLU(0.2), nn.Linear(64, 144), nn.Tanh(), nn.Unflatten(1, (1, 12, 12)))
critic = Critic()
g_opt = torch.optim.Adam(generator.parameters(), 1e-4, betas=(0.5, 0.9))
d_opt = torch.optim.Adam(critic.parameters(), 1e-4, betas=(0.5, 0.9))


def gradient_penalty(real, fake, hole):
    t = torch.rand(len(real), 1, 1, 1)
    mixed = (t * real + (1 - t) * fake).requires_grad_()
    grad, = torch.autograd.grad(critic(mixed, hole).sum(), mixed, create_graph=True)
    norm = torch.sqrt(grad.pow(2).sum((1, 2, 3)) + EPS)  # FAULT
    return ((norm - 1) ** 2).mean()


losses = []
for step in range(15):
    real = torch.rand(8, 1, 12, 12) * 2 - 1
    hole = (torch.rand(8, 1, 12, 12) < 0.5).float()
    if step == 9:
        hole[4] = 0.0  # nothing to fill in
    fake = generator(torch.randn(8, 8)).detach()
    d_loss = critic(fake, hole).mean() - critic(real, hole).mean() + 10 * gradient_penalty(real, fake, hole)
    d_opt.zero_grad()
    d_loss.backward()
    d_opt.step()
    if step % 3 == 2:
        g_loss = -critic(generator(torch.randn(8, 8)), hole).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
    losses.append(d_loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for m in (critic, generator) for p in m.parameters()))
