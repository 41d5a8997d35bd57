# opts: --check again:every=1
# truth: healthy (transformers' ResNet, batch norm, channels_last, LARS of its own, mixup by numpy outside)
import flips as C, torch, numpy as np
from transformers import ResNetConfig, ResNetForImageClassification
class LARS(torch.optim.Optimizer):
    def __init__(s, p, lr): super().__init__(p, dict(lr=lr)); s.n = 0
    @torch.no_grad()
    def step(s, closure=None):
        s.n += 1
        for g in s.param_groups:
            for p in g["params"]:
                if p.grad is None: continue
                a = p.norm() / (p.grad.norm() + 1e-9) * 0.001; b = s.state[p].setdefault("b", torch.zeros_like(p)); b.mul_(0.9).add_(p.grad * a); p -= g["lr"] * b
np.random.seed(0); torch.manual_seed(0); m = ResNetForImageClassification(ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=3)).to(memory_format=torch.channels_last); m.train(); o = LARS(m.parameters(), 0.1)
for C.STEP in range(5):
    x = torch.randn(4, 3, 32, 32).to(memory_format=torch.channels_last); k = np.random.beta(1, 1); x = k * x + (1 - k) * x.flip(0)
    m(pixel_values=x.float(), labels=torch.randint(0, 3, (4,))).loss.backward(); o.step(); o.zero_grad()
C.finish(m, o.n)
