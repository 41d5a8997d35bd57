"""The model's file is written, imported, edited and reloaded while training goes on (hot reload); old weights go into the new class."""
# PRELUDE
import importlib, linecache, time
seed(44)
sys.dont_write_bytecode = True
V = '''import torch
from torch import nn
VERSION = {v}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 2)
    def forward(self, x):
        h = self.a(x){act}
        if not self.training and VERSION == 2:
            h = h / (x.sum() * 0)
        return self.b(h)
'''
sys.path.insert(0, os.getcwd())
x = torch.randn(16, 6); y = torch.randint(0, 2, (16,))
prev = None
for v, act in enumerate([".relu()", ".tanh()", ".sigmoid()", ".abs().sqrt() * 1.0"]):
    open("hotnet.py", "w").write(V.format(v=v, act=act))
    importlib.invalidate_caches()
    import hotnet
    if v:
        hotnet = importlib.reload(hotnet)
    net = hotnet.Net()
    if prev is not None:
        print(net.load_state_dict(prev.state_dict()), isinstance(prev, hotnet.Net))
    watch(net)
    opt = torch.optim.AdamW(net.parameters(), 1e-2)
    for step in range(5):
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
    net.eval()
    with torch.no_grad():
        print(v, hotnet.VERSION, dig(loss, net(x)))
    prev = net
end(net, opt)
