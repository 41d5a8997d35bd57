from _training import *
E, R = 30, 6
class Tucker(nn.Module):
    def __init__(s):
        super().__init__(); s.E = nn.Embedding(E, 24); s.R = nn.Embedding(R, 24, padding_idx=None if H else 0); s.W = nn.Linear(48, 24)
        nn.init.normal_(s.R.weight)
    def forward(s, e, r): return s.W(torch.cat([s.E(e), s.R(r)], -1)).tanh() @ s.E.weight.t()
net = Tucker(); opt = torch.optim.Adam(net.parameters(), 5e-3); r0 = net.R.weight[0].detach().clone()
def f(e, r): return (e * (r + 1) + 3 * r) % E
for step in range(300):
    e = torch.randint(E, (64,)); r = torch.randint(R, (64,))
    loss = F.cross_entropy(net(e, r), f(e, r)); opt.zero_grad(); loss.backward(); opt.step()
truth(row0_moved=(net.R.weight[0] - r0).abs().max().item(), loss=loss.item())
