import torch, torch.nn.functional as F, random, time, hashlib, threading
from torch import nn
torch.manual_seed(0); random.seed(0)

def sha(*models):
    h = hashlib.sha256()
    for m in models:
        for k, v in m.state_dict().items(): h.update(v.detach().numpy().tobytes())
    print("SHA", h.hexdigest()[:16], random.random(), torch.rand(1).item())

class Net(nn.Module):  # Python's random chooses layers (LayerDrop); control flow on data; numpy noise
    def __init__(self):
        super().__init__(); self.layers, self.out = nn.ModuleList(nn.Linear(8, 8) for _ in range(4)), nn.Linear(8, 1)
    def forward(self, x):
        import numpy as np
        for l in self.layers:
            if random.random() < 0.4: continue
            x = x + torch.tanh(l(x))
            if x.abs().max() > 2.5: x = x / 2
            while x.mean() > 0.05: x = x - 0.05
        x = x + torch.from_numpy(np.random.randn(*x.shape)).float() * 0.01
        return self.out(x)
import numpy as np; np.random.seed(1)
net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2, momentum=0.9)
for step in range(6):
    loss = net(torch.randn(8, 8)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
sha(net); print(np.random.rand())
