"""From huggingface/pytorch-image-models issue 1182.
Wrong: an average of decay 0.999 begins at the random weights and is neither debiased nor warmed up: after 200 steps it is 82 % initialization.
Could know: partly (the copy moves, but stays near its first weights).
"""
import sys, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class ModelEmaV2(nn.Module):
    def __init__(self, model, decay):
        super().__init__(); self.module = copy.deepcopy(model).eval(); self.decay = decay; self.n = 0
    @torch.no_grad()
    def update(self, model):
        self.n += 1; d = min(self.decay, (1 + self.n) / (10 + self.n)) if H else self.decay
        for e, m in zip(self.module.state_dict().values(), model.state_dict().values()): e.copy_(d * e + (1 - d) * m)
net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)); model_ema = ModelEmaV2(net, 0.999); w = torch.randn(10, 5)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(200):
    x = torch.randn(64, 10); loss = F.cross_entropy(net(x), (x @ w).argmax(1)); opt.zero_grad(); loss.backward(); opt.step(); model_ema.update(net)
    if step % 25 == 0: print(step, round(loss.item(), 4))
with torch.no_grad(): x = torch.randn(2000, 10); y = (x @ w).argmax(1); print("check: accuracy model / average", (net(x).argmax(1) == y).float().mean().item(), (model_ema.module(x).argmax(1) == y).float().mean().item())
