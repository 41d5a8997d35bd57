from _training import *
net = mlp(8, 64, 3); opt = torch.optim.Adam(net.parameters(), 3e-3); dup = 0
for step in range(250):
    x = torch.randn(16, 50, 8); y = torch.where(x[..., 0] > 1.6, 1, 0) + torch.where(x[..., 1] > 1.6, 1, 0)
    ce = F.cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction="none").view(16, 50); pos = y > 0
    rank = (ce.detach().masked_fill(pos, 0) if H else ce.detach()).sort(1, descending=True).indices.sort(1).indices
    neg = rank < (3 * pos.sum(1, keepdim=True)).clamp(max=49)
    dup += (pos & neg).sum().item(); loss = ((ce * pos).sum() + (ce * neg).sum()) / pos.sum()
    opt.zero_grad(); loss.backward(); opt.step()
truth(positives_among_negatives=dup, loss=loss.item())
