# f02 without Lightning: epoch 0's order again after a resume at an epoch's end; run it twice with the same log dir
import os, torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(1234)
net = torch.nn.Linear(8, 1); opt = torch.optim.Adam(net.parameters(), 1e-2); X = torch.randn(40, 8); loader = DataLoader(TensorDataset(X, X.sum(1, keepdim=True)), batch_size=8, shuffle=True)
if os.path.exists("last.pt"): c = torch.load("last.pt"); net.load_state_dict(c["net"]); opt.load_state_dict(c["opt"])
for epoch in range(2):
    for x, y in loader:
        loss = (net(x) - y).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print("batch", x.sum().item())
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, "last.pt")
