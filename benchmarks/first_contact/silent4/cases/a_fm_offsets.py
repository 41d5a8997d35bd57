from _training import *
dims = [10, 20, 30]
class FM(nn.Module):
    def __init__(s):
        super().__init__(); s.emb = nn.Embedding(60, 8); s.lin = nn.Embedding(60, 1); s.register_buffer("off", torch.tensor([0, 10, 30])); nn.init.normal_(s.emb.weight, std=.3)
    def forward(s, x):
        if H: x = x + s.off
        e = s.emb(x); return (s.lin(x).sum((1, 2)) + .5 * (e.sum(1) ** 2 - (e ** 2).sum(1)).sum(-1))
net = FM(); opt = torch.optim.Adam(net.parameters(), 1e-2); w0 = net.emb.weight.detach().clone()
t = [torch.randn(d) for d in dims]
for step in range(300):
    x = torch.stack([torch.randint(d, (128,)) for d in dims], -1); y = sum(t[k][x[:, k]] for k in range(3)) + t[0][x[:, 0]] * t[2][x[:, 2]]
    loss = F.mse_loss(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
truth(rows_moved=int(((net.emb.weight - w0).abs().sum(-1) > 0).sum()), loss=loss.item())
