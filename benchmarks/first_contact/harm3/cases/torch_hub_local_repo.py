"""torch.hub loads a local repository (hubconf.py with its own modules, dependencies checked, sys.path kept), list and help; the loaded model is trained; hub's folders."""
# PRELUDE
os.makedirs("repo/nets")
open("repo/nets/__init__.py", "w").write("")
open("repo/nets/m.py", "w").write("from torch import nn\n\n\nclass HubNet(nn.Module):\n    def __init__(self, h):\n        super().__init__()\n        self.a, self.b = nn.Linear(8, h), nn.Linear(h, 4)\n\n    def forward(self, x):\n        return self.b(self.a(x).relu())\n")
open("repo/hubconf.py", "w").write('dependencies = ["torch"]\nfrom nets.m import HubNet\n\n\ndef small(h=8):\n    """A small net."""\n    return HubNet(h)\n')
torch.hub.set_dir("hub")
before = list(sys.path)
print(torch.hub.get_dir())
m = torch.hub.load("repo", "small", h=12, source="local")
W(m)
print(train(m, torch.optim.Adam(m.parameters(), 1e-2), 4), M(m), sys.path == before, type(m).__module__, "nets.m" in sys.modules)
