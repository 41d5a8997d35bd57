#: what: a checkpoint with everything: loss function F.cross_entropy and partials, LambdaLR with a callable object, generators, DataLoader state; resumed within the same script and compared bit for bit
#: source: https://github.com/pytorch/pytorch/issues/3891
# PRELUDE
import functools, pickle, copy
from torch.utils.data import DataLoader, TensorDataset
class Warm:
    def __init__(self, n): self.n = n
    def __call__(self, s): return min(1.0, (s + 1) / self.n)
def build():
    m = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.2), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)); o = torch.optim.AdamW(m.parameters(), 1e-2, amsgrad=True); return m, o, torch.optim.lr_scheduler.SequentialLR(o, [torch.optim.lr_scheduler.LambdaLR(o, Warm(4)), torch.optim.lr_scheduler.CosineAnnealingLR(o, 20)], [4])
m, o, s = build(); watch(m); crit = functools.partial(F.cross_entropy, label_smoothing=0.1, weight=torch.tensor([1.0, 2.0, 0.5]))
def run(m, o, s, crit, n):
    out = []
    for _ in range(n): x = torch.randn(8, 6); l = crit(m(x), torch.randint(3, (8,))); o.zero_grad(); l.backward(); o.step(); s.step(); out.append(l.item())
    return out
a = run(m, o, s, crit, 6); ck = {"m": m.state_dict(), "o": o.state_dict(), "s": s.state_dict(), "crit": crit, "fns": [F.cross_entropy, torch.nn.functional.kl_div, torch.optim.AdamW, nn.Linear.forward, torch.Tensor.backward], "rng": (torch.get_rng_state(), random.getstate(), np.random.get_state())}
torch.save(ck, "ck.pt"); open("ck.pkl", "wb").write(pickle.dumps([F.cross_entropy, F.mse_loss, nn.Module.__call__ if False else nn.Linear, torch.no_grad]))
b = run(m, o, s, crit, 6); d = torch.load("ck.pt", weights_only=False); m2, o2, s2 = build(); m2.load_state_dict(d["m"]); o2.load_state_dict(d["o"]); s2.load_state_dict(d["s"]); torch.set_rng_state(d["rng"][0]); c = run(m2, o2, s2, d["crit"], 6)
print(a, b == c, sha(m.state_dict()) == sha(m2.state_dict()), d["fns"][0] is F.cross_entropy, s.get_last_lr(), s2.get_last_lr()); show(m, o); show(m2, o2)
