"""SimCLR-style loss with exp(sim / temperature) by hand and a temperature of 0.01.
Source: facebookresearch/dinov2#583 (exp of logits over a small temperature), WHU-AISE/TVDiag#5."""
import sys
import torch
import torch.nn.functional as F
import timm

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = timm.create_model("resnet10t", pretrained=False, num_classes=16)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)


def nt_xent(a, b, temperature):
    z = F.normalize(torch.cat([a, b]))
    sim = z @ z.T / temperature
    n = len(a)
    if CURED:
        sim = sim - sim.max(1, keepdim=True).values.detach()
    e = torch.exp(sim)  # FAULT
    off = ~torch.eye(2 * n, dtype=torch.bool)
    pos = torch.cat([e.diagonal(n), e.diagonal(-n)])
    return -(pos.clamp(min=1e-30) / (e * off).sum(1).clamp(min=1e-30)).log().mean()


for step, temperature in enumerate([0.5, 0.1, 0.01, 0.01]):
    x = torch.randn(4, 3, 64, 64)
    loss = nt_xent(net(x), net(x + 0.1 * torch.randn_like(x)), temperature)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
