"""timm's own optimizers (Adan, ADOPT, MARS, LaProp, Lion, Lamb, MADGRAD, Muon, foreach or not, caution, corrected decay) must keep weights, states, versions and random states."""
# PRELUDE
from timm.optim import create_optimizer_v2, list_optimizers

names = [n for n in ("adan", "adanw", "adopt", "adoptw", "mars", "laprop", "lion", "lamb", "lambc", "madgrad", "nadamw", "novograd", "nvnovograd", "radamw", "rmsproptf", "sgdw", "sgdp", "adamp",
                     "adabelief", "adafactorbv", "bigvision", "adahessian", "lars", "larc", "muon", "nadamuon", "cadamw", "clion", "clamb", "cmars", "csgdw", "lookahead_adamw", "yogi") if n in list_optimizers() or n.startswith("lookahead")]
print(len(names), "listed")
for n in names:
    torch.manual_seed(0)
    m = nn.Sequential(nn.Conv1d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 8), nn.LayerNorm(8), nn.Linear(8, 4))
    W(m)
    try:
        opt = create_optimizer_v2(m, opt=n, lr=1e-2, weight_decay=0.02)
    except Exception as e:
        print(n, type(e).__name__, str(e)[:100])
        continue
    second = "hessian" in n
    for s in range(3):
        x, y = batch(s, 5, 16)
        opt.zero_grad()
        loss = F.mse_loss(m(x.view(5, 2, 8)), y)
        loss.backward(create_graph=second)
        opt.step()
    st = [t for v in opt.state.values() for t in v.values() if torch.is_tensor(t)]
    print(n, type(opt).__name__, float(loss.detach()).hex(), M(m), H(st), [p._version for p in m.parameters()], sorted({t._version for t in st}), R())
