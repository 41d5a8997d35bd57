import torch, torch.nn.functional as F, random, time, hashlib, threading
from torch import nn
torch.manual_seed(0); random.seed(0)

def sha(*models):
    h = hashlib.sha256()
    for m in models:
        for k, v in m.state_dict().items(): h.update(v.detach().numpy().tobytes())
    print("SHA", h.hexdigest()[:16], random.random(), torch.rand(1).item())

table = torch.randn(8, 8)
def refresh():  # a thread of the script's own writes into what the model holds
    while not stop.is_set():
        table.data.add_(1e-3); time.sleep(0.0005)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.out = nn.Linear(8, 8), nn.Linear(8, 1); self.register_buffer("bias", table)
    def forward(self, x):
        time.sleep(0.003)
        return self.out(torch.tanh(self.a(x) @ self.bias))
stop = threading.Event(); threading.Thread(target=refresh, daemon=True).start()
net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(8):
    loss = net(torch.randn(4, 8)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
stop.set()
