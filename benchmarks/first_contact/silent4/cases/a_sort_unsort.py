from _training import *
from torch.nn.utils.rnn import pack_padded_sequence
class Net(nn.Module):
    def __init__(s):
        super().__init__(); s.e = nn.Embedding(12, 16); s.r = nn.LSTM(16, 32, batch_first=True); s.o = nn.Linear(32, 2)
    def forward(s, x, n):
        n, order = n.sort(descending=True)
        _, (h, _) = s.r(pack_padded_sequence(s.e(x[order]), n, batch_first=True))
        h = h[-1]
        if H: h = h[order.argsort()]
        return s.o(h)
net = Net(); opt = torch.optim.Adam(net.parameters(), 5e-3); a = []
for step in range(200):
    x = torch.randint(1, 12, (32, 10)); n = torch.randint(3, 11, (32,)); y = (x[:, 0] > 6).long()
    out = net(x, n); loss = F.cross_entropy(out, y); opt.zero_grad(); loss.backward(); opt.step()
    a.append((out.argmax(-1) == y).float().mean().item())
truth(acc=sum(a[-20:]) / 20)
