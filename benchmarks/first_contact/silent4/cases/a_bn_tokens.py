from _training import *
class Net(nn.Module):
    def __init__(s, n=12, d=24):
        super().__init__(); s.bn = nn.BatchNorm1d(d if H else n); s.e = nn.Linear(d, 32); s.o = nn.Linear(32, 4)
    def forward(s, x):
        x = s.bn(x.transpose(1, 2)).transpose(1, 2) if H else s.bn(x)
        return s.o(s.e(x).relu().mean(1))
sc = torch.logspace(-2, 2, 24); net = Net(); opt = torch.optim.Adam(net.parameters(), 3e-3)
for step in range(250):
    y = torch.randint(4, (32,)); x = torch.randn(32, 12, 24); x[:, :, 0] += y[:, None].float() - 1.5; x = x * sc
    loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
truth(loss=loss.item())
