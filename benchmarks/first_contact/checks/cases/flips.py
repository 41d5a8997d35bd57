"""One flipped bit of one element of one operation's result, at a step that is checked. flips.py SET [--bare]; SET: a name in SETS."""
import copy, json, sys, time
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

torch.set_num_threads(1)
NAMES = ("view", "_unsafe_view", "t", "transpose", "permute", "expand", "detach", "alias", "slice", "select", "unsqueeze", "squeeze", "split", "as_strided", "empty", "empty_like", "zeros", "zeros_like", "ones_like", "full", "unbind", "chunk", "reshape", "new_zeros", "new_empty", "narrow", "_reshape_alias", "lift_fresh", "arange", "scalar_tensor", "full_like", "new_ones", "split_with_sizes", "unfold", "diagonal", "copy_", "zero_", "fill_", "clone")


class Flip(TorchDispatchMode):
    """Counts operations that compute; flips bit `bit` of the largest element of result number `at` (None: only lists)."""

    def __init__(self, at=None, bit=0, dtype=torch.float32):
        super().__init__()
        self.at, self.bit, self.dtype, self.n, self.list, self.done = at, bit, dtype, 0, [], None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in NAMES:
            return out
        t = out if torch.is_tensor(out) else next((o for o in out if torch.is_tensor(o)), None) if isinstance(out, (tuple, list)) else None
        if t is None or t.dtype != self.dtype or t.numel() == 0:
            return out
        if self.at is None:
            self.list.append((self.n, name, t.numel()))
        elif self.n == self.at and self.done is None:
            i = int(t.abs().nan_to_num().flatten().argmax())
            idx = tuple(int(k) for k in torch.unravel_index(torch.tensor(i), t.shape)) if t.dim() else ()
            it, top = (torch.int32, 31) if t.dtype == torch.float32 else (torch.int16, 15)
            old = t[idx].clone().reshape(1)
            mask = -(1 << top) if self.bit == top else 1 << self.bit
            new = (old.view(it) ^ mask).view(t.dtype)
            t[idx] = new[0]
            self.done = dict(op=name, old=float(old), new=float(new), idx=list(idx))
        self.n += 1
        return out


class MLP(nn.Module):
    def __init__(s):
        super().__init__(); s.a = nn.Linear(16, 32); s.n = nn.LayerNorm(32); s.b = nn.Linear(32, 32); s.d = nn.Dropout(.1); s.c = nn.Linear(32, 5)
    def forward(s, x): return s.c(s.d(F.gelu(s.b(s.n(s.a(x))))))
class Conv(nn.Module):
    def __init__(s):
        super().__init__(); s.f = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 16, 3, 2), nn.BatchNorm2d(16), nn.SiLU()); s.h = nn.Linear(16, 5)
    def forward(s, x): return s.h(s.f(x).mean((2, 3)))
class Rnn(nn.Module):
    def __init__(s):
        super().__init__(); s.i = nn.Linear(6, 12); s.c = nn.LSTMCell(12, 12); s.o = nn.Linear(12, 5)
    def forward(s, x):
        h = c = torch.zeros(len(x), 12, dtype=x.dtype)
        for t in range(x.shape[1]): h, c = s.c(torch.tanh(s.i(x[:, t])), (h, c))
        return s.o(h)
class Enc(nn.Module):
    def __init__(s):
        super().__init__(); s.e = nn.Linear(6, 16); s.t = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, .1, batch_first=True, activation="gelu"), 2); s.o = nn.Linear(16, 5)
    def forward(s, x): return s.o(s.t(s.e(x)).mean(1))
def gpt2():
    from transformers import GPT2Config, GPT2ForSequenceClassification
    m = GPT2ForSequenceClassification(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, num_labels=5, pad_token_id=0)); m.float()
    class W(nn.Module):
        def __init__(s): super().__init__(); s.m = m
        def forward(s, x): return s.m(input_ids=x).logits
    return W()
class VAE(nn.Module):
    def __init__(s):
        super().__init__(); s.e = nn.Linear(16, 24); s.mu = nn.Linear(24, 4); s.lv = nn.Linear(24, 4); s.d = nn.Linear(4, 5)
    def forward(s, x): h = s.e(x).tanh(); m, l = s.mu(h), s.lv(h); return s.d(m + torch.randn_like(m) * (l * .5).exp())
X = dict(MLP=lambda: torch.randn(16, 16), Conv=lambda: torch.randn(6, 3, 8, 8), Rnn=lambda: torch.randn(8, 6, 6), Enc=lambda: torch.randn(6, 7, 6), gpt2=lambda: torch.randint(1, 40, (6, 8)), VAE=lambda: torch.randn(16, 16))
MAKE = dict(MLP=MLP, Conv=Conv, Rnn=Rnn, Enc=Enc, gpt2=gpt2, VAE=VAE)
LOSS_OPS = ("nll_loss_backward", "_log_softmax_backward_data", "_log_softmax", "nll_loss_forward", "_to_copy")


def setup(name, dtype):
    torch.manual_seed(1)
    m = MAKE[name]().to(dtype)
    data = [(x.to(dtype) if x.is_floating_point() else x, torch.randint(5, (len(x),))) for x in (X[name]() for _ in range(6))]
    return m, torch.optim.SGD(m.parameters(), .05), data


def steps(m, opt, data, mode=None, phase=None, at=1, n=5):
    """n steps; `mode` is on in `phase` of step `at`."""
    from contextlib import nullcontext
    losses = []
    torch.manual_seed(2)
    for s in range(n):
        on = lambda p: mode if mode is not None and s == at and p == phase else nullcontext()
        x, y = data[s]
        opt.zero_grad()
        with on("forward"): out = m(x)
        with on("loss"): loss = F.cross_entropy(out.float(), y)
        with on("backward"): loss.backward()
        with on("step"): opt.step()
        losses.append(loss.item())
    return losses


def trace(name, dtype, mode=None, phase=None):
    """Everything that a module gives, and the gradients, of step 1: does the flip reach any of it?"""
    m, opt, data = setup(name, dtype)
    seen = []
    for k in m.modules():
        k.register_forward_hook(lambda k, a, o: seen.append(o.detach().clone()) if torch.is_tensor(o) else None)
    l = steps(m, opt, data, mode, phase, n=2)
    return [t.float() for t in seen] + [p.grad.float() for p in m.parameters() if p.grad is not None], l


def listing(name, dtype, phase):
    mode = Flip(None, dtype=dtype)
    m, opt, data = setup(name, dtype)
    steps(m, opt, data, mode, phase, n=2)
    return [o for o in mode.list if not (phase == "backward" and o[1] in LOSS_OPS)]


def plan(which):
    p = []
    f32, bf = torch.float32, torch.bfloat16
    if which == "a":  # every bit once, forward
        p = [(n, f32, "forward", b, 7 * b) for b, n in ((b, ["MLP", "Conv", "Rnn", "Enc", "VAE"][b % 5]) for b in range(32))]
    if which == "b":  # every bit once, backward
        p = [(n, f32, "backward", b, 5 * b + 1) for b, n in ((b, ["Conv", "MLP", "Enc", "VAE", "Rnn"][b % 5]) for b in range(32))]
    if which == "c":  # bfloat16, each bit forward and backward
        p = [(["MLP", "Enc", "VAE", "Rnn"][b % 4], bf, ("forward", "backward")[k], b, 11 * b + 3 * k) for b in range(16) for k in (0, 1)]
    if which == "d":  # gpt2, loss outside, optimizer
        p = [("gpt2", f32, ("forward", "backward")[b % 2], b, 9 * b) for b in (0, 5, 10, 15, 20, 23, 26, 31)]
        p += [(n, f32, ph, b, k) for n, k in (("MLP", 0), ("Conv", 1)) for ph in ("loss", "step") for b in (3, 22)]
    return p


if __name__ == "__main__":
    which = sys.argv[1]
    for name, dtype, phase, bit, seed in plan(which):
        ops = listing(name, dtype, phase)
        if not ops:
            print(json.dumps(dict(name=name, dtype=str(dtype), phase=phase, bit=bit, none=True)), flush=True); continue
        at, op, numel = ops[seed % len(ops)]
        mode = Flip(at, bit, dtype)
        a, la = trace(name, dtype); b, lb = trace(name, dtype, mode, phase)
        reach = sum(not torch.equal(u.nan_to_num(9e9), v.nan_to_num(9e9)) for u, v in zip(a, b))
        row = dict(name=name, dtype=str(dtype)[6:], phase=phase, bit=bit, op=op, numel=numel, **{k: mode.done[k] for k in ("old", "new")}, reach=reach, loss_differs=la != lb)
        m, opt, data = setup(name, dtype)
        t = time.time(); bare = steps(m, opt, data, Flip(at, bit, dtype), phase); row["bare_s"] = round(time.time() - t, 3)
        if "--bare" not in sys.argv:
            import numscope
            m, opt, data = setup(name, dtype)
            t = time.time()
            scope = numscope.watch(m, check="again:at=1", on_nonfinite="note")
            f = Flip(at, bit, dtype)
            try:
                got = steps(m, opt, data, f, phase)
            except BaseException as e:
                got = repr(e)[:300]
            row["s"] = round(time.time() - t, 3)
            row["same"] = repr(got) == repr(bare)
            scope.close()
            row["alerts"] = [str(x) for x in scope.alerts]
            if not row["same"]: row["got"], row["bare"] = repr(got), repr(bare)
        print(json.dumps(row), flush=True)
