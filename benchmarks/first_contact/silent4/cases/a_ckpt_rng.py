from _training import *
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(s): super().__init__(); s.a = nn.Linear(32, 64); s.b = nn.Linear(64, 32); s.d = nn.Dropout(.5)
    def forward(s, x): return x + s.b(s.d(s.a(x).relu()))
class Net(nn.Module):
    def __init__(s): super().__init__(); s.i = nn.Linear(16, 32); s.blocks = nn.ModuleList(Block() for _ in range(3)); s.o = nn.Linear(32, 4)
    def forward(s, x):
        x = s.i(x)
        for b in s.blocks: x = checkpoint(b, x, use_reentrant=False, preserve_rng_state=H)
        return s.o(x)
x, y = blobs(2000, s=2.); net = Net(); opt = torch.optim.Adam(net.parameters(), 2e-3)
for step in range(250):
    i = torch.randint(2000, (64,)); loss = F.cross_entropy(net(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step()
torch.manual_seed(3); l = F.cross_entropy(net(x[:64]), y[:64]); opt.zero_grad(); l.backward(); g = net.blocks[0].b.weight.grad.clone()
torch.manual_seed(3); h = net.i(x[:64])
for b in net.blocks: h = b(h)
l = F.cross_entropy(net.o(h), y[:64]); g2 = torch.autograd.grad(l, net.blocks[0].b.weight)[0]
truth(cosine_with_true_gradient=F.cosine_similarity(g.flatten(), g2.flatten(), 0).item())
