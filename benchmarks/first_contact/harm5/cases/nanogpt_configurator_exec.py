"""nanoGPT's training: configuration by exec of configurator.py and of a configuration file into the globals, memmap batches, grouped weight decay by dimension, cosine learning rate, estimate_loss, checkpoint with optimizer and arguments."""
# PRELUDE
import math
from ast import literal_eval
open("config_small.py", "w").write("n_embd = 16\nmax_iters = 6\nlearning_rate = 1e-2\n")
open("configurator.py", "w").write('''
import sys
from ast import literal_eval
for arg in sys.argv[1:]:
    if '=' not in arg:
        print("Overriding config with", arg)
        print(open(arg).read())
        exec(open(arg).read())
    else:
        key, val = arg[2:].split('=')
        if key in globals():
            try:
                attempt = literal_eval(val)
            except (SyntaxError, ValueError):
                attempt = val
            assert type(attempt) == type(globals()[key])
            print(f"Overriding: {key} = {attempt}")
            globals()[key] = attempt
        else:
            raise ValueError(f"Unknown config key: {key}")
''')
n_layer, n_embd, n_head, block_size, max_iters, learning_rate, dtype, grad_accum = 1, 8, 2, 8, 3, 1e-3, "bfloat16", 2
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, bool, str))]
exec(open("configurator.py").read())
config = {k: globals()[k] for k in config_keys}
print(config)
np.arange(400, dtype=np.uint16).__mod__(26).tofile("train.bin")


def get_batch():
    data = np.memmap("train.bin", dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (4,))
    return tuple(torch.stack([torch.from_numpy(data[i + o:i + o + block_size].astype(np.int64)) for i in ix]) for o in (0, 1))


class Attn(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd, bias=False), nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (z.view(B, T, n_head, C // n_head).transpose(1, 2) for z in self.c_attn(x).split(n_embd, 2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(26, n_embd), wpe=nn.Embedding(block_size, n_embd), h=nn.ModuleList(nn.ModuleDict(dict(ln=nn.LayerNorm(n_embd), attn=Attn(), mlp=nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd)))) for _ in range(n_layer))))
        self.lm_head = nn.Linear(n_embd, 26, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(lambda m: nn.init.normal_(m.weight, std=0.02) if isinstance(m, (nn.Linear, nn.Embedding)) else None)

    def forward(self, idx, targets=None):
        x = self.transformer.wte(idx) + self.transformer.wpe(torch.arange(idx.shape[1]))
        for b in self.transformer.h:
            x = x + b.attn(b.ln(x))
            x = x + b.mlp(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        lg = self.lm_head(x)
        return lg, F.cross_entropy(lg.view(-1, 26), targets.view(-1), ignore_index=-1)


model = GPT()
W(model)
P = {n: p for n, p in model.named_parameters() if p.requires_grad}
opt = torch.optim.AdamW([{"params": [p for p in P.values() if p.dim() >= 2], "weight_decay": 0.1}, {"params": [p for p in P.values() if p.dim() < 2], "weight_decay": 0.0}], lr=learning_rate, betas=(0.9, 0.95))
X, Y = get_batch()
for it in range(max_iters):
    for g in opt.param_groups:
        g["lr"] = learning_rate * 0.5 * (1 + math.cos(math.pi * it / max_iters))
    if it % 3 == 0:
        model.eval()
        with torch.no_grad():
            print("eval", float(torch.stack([model(*get_batch())[1] for _ in range(3)]).mean()).hex())
        model.train()
    for micro in range(grad_accum):
        _, loss = model(X, Y)
        loss = loss / grad_accum
        X, Y = get_batch()
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad(set_to_none=True)
    print(it, (loss.item() * grad_accum).hex())
torch.save({"model": model.state_dict(), "optimizer": opt.state_dict(), "iter_num": it, "config": config}, "ckpt.pt")
model.eval()
idx = torch.zeros(1, 1, dtype=torch.long)
with torch.no_grad():
    for _ in range(10):
        lg = model(idx[:, -block_size:])[0][:, -1] / 0.8
        v, _ = torch.topk(lg, 5)
        lg[lg < v[:, [-1]]] = -float("Inf")
        idx = torch.cat((idx, torch.multinomial(F.softmax(lg, -1), 1)), 1)
print(idx.tolist(), M(model), R())
