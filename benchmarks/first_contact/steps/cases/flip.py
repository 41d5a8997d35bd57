"""flip.py CASE: one bit of one result is flipped in memory, once, at step 2, by its address: no operation of torch does it."""
import ctypes
import os
import sys

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

CASE, MAIN, AT = sys.argv[1], -1 if os.environ.get("NOSTRIKE") else os.getpid(), 2
BITS = {"mlp-fc1": 5, "mlp-fc2": 20, "mlp-gelu": 31, "mlp-relu": 22, "mlp-norm": 12, "conv-conv": 21, "conv-norm": 10, "conv-pool": 17, "att-qkv": 13, "att-scores": 19,
        "att-softmax": 18, "att-out": 8, "emb-emb": 15, "lstm-out": 9, "gru-hidden": 20, "bf16-fc1": 3, "amp-fc1": 6, "mlp-grad-relu": 15, "mlp-grad-norm": 18, "att-grad-softmax": 19, "conv-grad-pool": 16,
        "mlp-wgrad-fc1": 18, "mlp-wgrad-bias": 14, "conv-wgrad": 20, "emb-wgrad": 11, "adam-avg": 12, "adam-weight": 14, "sgd-momentum": 21, "mlp-high": 29, "mlp-low": 0, "acc-second": 17, "gpt2-mlp": 13,
        "half-fc1": 7, "res-add": 16, "gpt2-wgrad": 19, "rms-avg": 16, "norm-wgrad": 17, "emb-grad": 14, "ckpt-fc1": 15, "comp-fc1": 15,
        "mlp-hook-norm": 12, "conv-hook-conv": 21, "conv-hook-norm": 13, "emb-hook-emb": 15, "lstm-hook-cell": 16, "gru-hook-cell": 20}
STEP, RANK = [0], int(os.environ.get("RANK", 0))
fired = []


def strike(case, t):
    if case != CASE or STEP[0] != AT or os.getpid() != MAIN or fired:
        return None
    fired.append(case)
    size = t.element_size()
    kind = {2: ctypes.c_uint16, 4: ctypes.c_uint32}[size]
    number = {4: ctypes.c_float}.get(size)
    for i in range(t.numel()):
        cell = kind.from_address(t.data_ptr() + i * size)
        value = number.from_buffer_copy(cell).value if number else (cell.value & 0x7FFF)
        if abs(value) > 1e-6:
            old = cell.value
            cell.value ^= 1 << BITS[case]
            print(f"STRUCK {case} element {i} of {tuple(t.shape)} {t.dtype}: {old:#x} -> {cell.value:#x} bit {BITS[case]} rank {RANK}", flush=True)
            break
    return None


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.norm, self.act, self.fc2 = nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)

    def forward(self, x):
        h = F.linear(x, self.fc1.weight, self.fc1.bias) if CASE == "x" else self.fc1(x)
        return self.fc2(F.relu(self.act(self.norm(h))))


class Strike(nn.Module):
    def __init__(self, *cases):
        super().__init__()
        self.cases = cases


class Struck(nn.Linear):
    def __init__(self, cases, *a, **k):
        super().__init__(*a, **k)
        self.cases = cases

    def forward(self, x):
        y = F.linear(x, self.weight, self.bias)  #@ mlp-fc1 mlp-fc2 mlp-high mlp-low bf16-fc1 amp-fc1 half-fc1 acc-second att-qkv att-out ckpt-fc1 comp-fc1 mlp-wgrad-fc1 mlp-wgrad-bias
        for c in self.cases:
            strike(c, y)
        return y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = Struck(["mlp-fc1", "mlp-high", "mlp-low", "bf16-fc1", "amp-fc1", "half-fc1", "ckpt-fc1", "comp-fc1"], 8, 16)
        self.norm, self.fc2 = nn.LayerNorm(16), Struck(["mlp-fc2", "acc-second" if CASE == "acc-second" else ""], 16, 4)

    def forward(self, x):
        h = self.fc1(x)
        h = self.norm(h)  #@ mlp-norm mlp-hook-norm mlp-grad-norm norm-wgrad
        strike("mlp-norm", h)
        if h.requires_grad and CASE == "mlp-grad-norm":
            h.register_hook(lambda g: strike("mlp-grad-norm", g))
        h = F.gelu(h)  #@ mlp-gelu
        strike("mlp-gelu", h)
        h = F.relu(h)  #@ mlp-relu mlp-grad-relu
        strike("mlp-relu", h)
        if h.requires_grad and CASE == "mlp-grad-relu":
            h.register_hook(lambda g: strike("mlp-grad-relu", g))
        return self.fc2(h)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.proj, self.last = nn.Linear(8, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = self.proj(x) + self.net(x)  #@ res-add
        strike("res-add", h)
        return self.last(h)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 9, 4)

    def forward(self, x):
        h = self.conv(x.view(-1, 1, 8, 8))  #@ conv-conv conv-hook-conv conv-wgrad
        strike("conv-conv", h)
        h = self.norm(h)  #@ conv-norm conv-hook-norm
        strike("conv-norm", h)
        h = F.max_pool2d(h, 2)  #@ conv-pool
        strike("conv-pool", h)
        h = h.relu()
        if h.requires_grad and CASE == "conv-grad-pool":
            h.register_hook(lambda g: strike("conv-grad-pool", g))
        return self.head(h.flatten(1))  #@ conv-grad-pool


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.head = Struck(["att-qkv"], 8, 24), Struck(["att-out"], 8, 8), nn.Linear(8, 4)

    def forward(self, x):
        q, k, v = self.qkv(x.view(-1, 4, 8)).chunk(3, -1)
        scores = q @ k.transpose(1, 2)  #@ att-scores
        strike("att-scores", scores)
        p = scores.softmax(-1)  #@ att-softmax
        strike("att-softmax", p)
        if p.requires_grad and CASE == "att-grad-softmax":
            p.register_hook(lambda g: strike("att-grad-softmax", g))
        return self.head(self.out(p @ v).mean(1))  #@ att-grad-softmax


class Words(nn.Module):
    def __init__(self, cell="lstm"):
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 8), nn.Linear(8, 4)
        self.cell = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](8, 8, batch_first=True)

    def forward(self, ids):
        e = self.embed(ids)  #@ emb-emb emb-hook-emb emb-wgrad
        strike("emb-emb", e)
        if e.requires_grad and CASE == "emb-grad":
            e.register_hook(lambda g: strike("emb-grad", g))
        y, h = self.cell(e)  #@ lstm-out lstm-hook-cell gru-hook-cell gru-hidden emb-grad
        strike("lstm-out", y)
        if isinstance(h, torch.Tensor):
            strike("gru-hidden", h)
            return self.head(h[-1])
        return self.head(y[:, -1])


torch.manual_seed(0)
kind = CASE.split("-")[0]
words = kind in ("emb", "lstm", "gru")
if kind in ("mlp", "bf16", "amp", "half", "adam", "sgd", "rms", "acc", "norm", "ckpt", "comp"):
    model = Net()
elif kind == "gpt2":
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    model.transformer.h[1].mlp.register_forward_hook(lambda m, a, y: strike("gpt2-mlp", y))
    if CASE == "gpt2-wgrad":
        model.transformer.h[0].attn.c_attn.weight.register_hook(lambda g: strike("gpt2-wgrad", g))
else:
    model = {"res": Residual, "conv": Conv, "att": Attention, "emb": Words, "lstm": Words, "gru": lambda: Words("gru")}[kind]()
if kind == "bf16":
    model = model.bfloat16()
if kind == "half":
    model = model.half()
for case, name in {"mlp-wgrad-fc1": "fc1.weight", "mlp-wgrad-bias": "fc1.bias", "conv-wgrad": "conv.weight", "emb-wgrad": "embed.weight", "norm-wgrad": "norm.weight"}.items():
    if CASE == case:
        dict(model.named_parameters())[name].register_hook(lambda g: strike(CASE, g))


HOOKS = {"mlp-hook-norm": "norm", "conv-hook-conv": "conv", "conv-hook-norm": "norm", "emb-hook-emb": "embed", "lstm-hook-cell": "cell", "gru-hook-cell": "cell"}
if CASE in HOOKS:
    dict(model.named_modules())[HOOKS[CASE]].register_forward_hook(lambda m, a, y: strike(CASE, y[0] if isinstance(y, tuple) else y))


class Adam(torch.optim.AdamW):
    def step(self, closure=None):
        super().step(closure)
        p = self.param_groups[0]["params"][0]
        strike("adam-avg", self.state[p]["exp_avg"])
        strike("adam-weight", p)


class SGD(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        p = self.param_groups[0]["params"][0]
        strike("sgd-momentum", self.state[p]["momentum_buffer"])


class RMS(torch.optim.RMSprop):
    def step(self, closure=None):
        super().step(closure)
        strike("rms-avg", self.state[self.param_groups[0]["params"][0]]["square_avg"])


optimizer = {"sgd": SGD, "rms": RMS, "half": SGD}.get(kind, Adam)(model.parameters(), lr=1e-3, **({"momentum": 0.9} if kind in ("sgd", "half") else {}))
run = torch.compile(model, backend="aot_eager") if kind == "comp" else model
for step in range(8):
    STEP[0] = step
    for part in range(2 if kind == "acc" else 1):
        if kind == "acc" and part == 0:
            STEP[0] = -1
        elif kind == "acc":
            STEP[0] = step
        if kind == "gpt2":
            ids = torch.randint(0, 20, (4, 8))
            loss = run(input_ids=ids, labels=ids).loss
        elif words:
            loss = F.cross_entropy(run(torch.randint(0, 20, (4, 6))), torch.randint(0, 4, (4,)))
        else:
            x = torch.randn(4, 64) if kind == "conv" else torch.randn(8, 32) if kind == "att" else torch.randn(8, 8)
            if kind in ("bf16", "half"):
                x = x.to(next(model.parameters()).dtype)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "amp"):
                out = torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False) if kind == "ckpt" else run(x)
            loss = F.cross_entropy(out.float(), torch.randint(0, 4, (out.shape[0],)))
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("end", "struck" if fired else "NOT STRUCK")
if os.environ.get("DIGEST"):
    import hashlib

    print("DIGEST", RANK, hashlib.sha256(b"".join(t.detach().contiguous().view(torch.uint8).numpy().tobytes() for t in [*model.state_dict().values(), *[v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor) and v.dim()]] if t.dim())).hexdigest()[:16], hashlib.sha256(b"".join(t.detach().contiguous().view(torch.uint8).numpy().tobytes() for t in model.state_dict().values() if t.dim())).hexdigest()[:16])
