"""An optimizer with named parameters, groups added in mid-training, step hooks, state dict hooks and load hooks, pickled, deep-copied and copied between steps; torch.optim.Muon beside AdamW; attributes of the optimizer object and of its class stay; the pickles' bytes."""
import copy, io, pickle
# PRELUDE
log = []
m = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
W(m)
named = list(m.named_parameters())
opt = torch.optim.AdamW([{"params": named[:2], "lr": 1e-2, "tag": "front"}], amsgrad=True)
muon = torch.optim.Muon([named[2][1]], lr=0.01) if hasattr(torch.optim, "Muon") else torch.optim.SGD([named[2][1]], lr=0.01)
opt.register_step_pre_hook(lambda o, a, k: log.append("pre"))
opt.register_step_post_hook(lambda o, a, k: log.append("post"))
opt.register_state_dict_post_hook(lambda o, d: {**d, "mine": len(log)})
opt.register_load_state_dict_pre_hook(lambda o, d: {k: v for k, v in d.items() if k != "mine"})
before = sorted(vars(opt)), sorted(vars(type(opt)))


def steps(n, first):
    for s in range(first, first + n):
        x, y = batch(s)
        opt.zero_grad(), muon.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        opt.step(), muon.step()
    return loss.item().hex()


print(steps(3, 0))
opt.add_param_group({"params": [n for n in named if n[0] not in ("0.weight", "0.bias", "2.weight")], "lr": 1e-3, "tag": "late"})
print(steps(3, 3), [g.get("param_names") for g in opt.param_groups], [g["tag"] for g in opt.param_groups])
print(sorted(vars(opt)) == before[0], set(sorted(vars(type(opt)))) ^ set(before[1]), type(opt.step).__name__, opt.step.__name__, opt.step.__qualname__)
plain = torch.optim.AdamW(m.parameters(), 1e-3)
for s in range(3):
    x, y = batch(s + 50)
    plain.zero_grad()
    F.mse_loss(m(x), y).backward()
    plain.step()
    b = io.BytesIO()
    torch.save(plain, b)
    print(H(b.getvalue()), len(b.getvalue()), H(pickle.loads(pickle.dumps(plain)).state_dict()))
twin = copy.deepcopy(plain)
print(type(twin).__name__, sorted(vars(twin)), H(twin.state_dict()), copy.copy(plain).param_groups[0]["params"][0] is m[0].weight, repr(plain) == repr(twin))
back = pickle.loads(pickle.dumps(plain))
for p in back.param_groups[0]["params"]:
    p.grad = torch.ones_like(p)
back.step()
print(H(back.state_dict()), M(m), len(plain._optimizer_step_pre_hooks), len(plain._optimizer_step_post_hooks))
sd = opt.state_dict()
print(sorted(sd), sd["mine"])
opt.load_state_dict(sd)
torch.save({"opt": sd, "muon": muon.state_dict()}, "opt.pt")
print(steps(3, 9), M(m), H(opt.state_dict()), H(log), len(log), R())
