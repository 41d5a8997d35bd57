from _training import *
class Res(nn.Module):
    def __init__(s, c): super().__init__(); s.conv = nn.Sequential(nn.ReLU(inplace=not H), nn.Conv1d(c, 16, 3, padding=1), nn.ReLU(inplace=True), nn.Conv1d(16, c, 1))
    def forward(s, x): return s.conv(x) + x
net = nn.Sequential(nn.Conv1d(1, 16, 3, padding=1), Res(16), Res(16), Res(16), nn.Conv1d(16, 1, 3, padding=1)); opt = torch.optim.Adam(net.parameters(), 2e-3); neg = []
net[1].register_forward_hook(lambda m, i, o: neg.append((i[0] < 0).float().mean().item()))
for step in range(150):
    x = torch.randn(16, 1, 24); loss = F.mse_loss(net(x), x.cumsum(-1) / 4); opt.zero_grad(); loss.backward(); opt.step()
truth(negative_share_of_the_skip=sum(neg) / len(neg), loss=loss.item())
