"""From pytorch/pytorch pull 27113.
Wrong: enable_observer() calls disable_observer() (as it once did in torch): after the warm-up with observers off, ranges stay as they began
and activations are clipped.  Could know: partly (the fake quantization's scale and observer buffers never change in training).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class FakeQuantize(nn.Module):
    def __init__(self): super().__init__(); self.register_buffer("hi", torch.tensor(1.)); self.register_buffer("lo", torch.tensor(-1.)); self.observer_on = True
    def enable_observer(self, on=True): self.observer_on = on
    def disable_observer(self): self.enable_observer(False)
    def forward(self, x):
        if self.observer_on and self.training: self.hi.lerp_(x.detach().max(), .1); self.lo.lerp_(x.detach().min(), .1)
        s = (self.hi - self.lo) / 255; z = int((-128 - self.lo / s).round().clamp(-128, 127)); return torch.fake_quantize_per_tensor_affine(x, s.item(), z, -128, 127)
def disable_observer(m):
    if type(m) is FakeQuantize: m.disable_observer()
def enable_observer(m):
    if type(m) is FakeQuantize: m.enable_observer() if H else m.disable_observer()
net = nn.Sequential(FakeQuantize(), nn.Linear(6, 64), nn.ReLU(), FakeQuantize(), nn.Linear(64, 64), nn.ReLU(), FakeQuantize(), nn.Linear(64, 1)); opt = torch.optim.Adam(net.parameters(), 3e-3); net.apply(disable_observer)
for step in range(200):
    if step == 20: net.apply(enable_observer)
    x = 2 * torch.randn(64, 6); loss = F.mse_loss(net(x), x[:, :2].sum(1, keepdim=True)); opt.zero_grad(); loss.backward(); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 4))
print("check: upper bounds of the three fake quantizations", [round(m.hi.item(), 3) for m in net if isinstance(m, FakeQuantize)], "loss", loss.item())
