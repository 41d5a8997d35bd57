#: what: the same normalization with learned edge weights: the inf degree term is in the graph; masked_fill, gradients stay finite
#: benign: inf in a forward with gradient, masked_fill
#: source: https://github.com/pyg-team/pytorch_geometric/pull/3711
# PRELUDE
class G(nn.Module):
    def __init__(self): super().__init__(); self.logit = nn.Parameter(torch.randn(40)); self.lin = nn.Linear(5, 4)
    def forward(self, x, ei):
        ew = self.logit.sigmoid(); deg = torch.zeros(len(x)).scatter_add(0, ei[1], ew)
        iso = deg == 0
        dis = torch.where(iso, torch.ones_like(deg), deg).pow(-0.5).masked_fill(iso, float("inf"))
        dis = dis.masked_fill(dis == float("inf"), 0.0)
        h = self.lin(x); return torch.zeros_like(h).index_add(0, ei[1], h[ei[0]] * (dis[ei[0]] * ew * dis[ei[1]])[:, None])
m = G(); watch(m); opt = torch.optim.Adagrad(m.parameters(), 0.05); x = torch.randn(20, 5); ei = torch.randint(14, (2, 40)); y = torch.randn(20, 4)
for ep in range(30):
    loss = F.smooth_l1_loss(m(x, ei), y); opt.zero_grad(); loss.backward(); opt.step()
print(loss.item()); show(m, opt)
