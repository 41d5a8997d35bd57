"""torch's Muon (Newton-Schulz in bfloat16) beside AdamW, and a schedule-free optimizer of the script's with train and eval modes that swap weights; parameters' values in both modes."""
# PRELUDE
m = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Tanh(), nn.Linear(16, 16, bias=False), nn.ReLU(), nn.Linear(16, 4))
W(m)
mats = [m[0].weight, m[2].weight]
rest = [m[4].weight, m[4].bias]
oa, ob = torch.optim.Muon(mats, lr=1e-2), torch.optim.AdamW(rest, lr=1e-2)
for s in range(4):
    x, t = batch(s)
    oa.zero_grad(), ob.zero_grad()
    l = F.mse_loss(m(x), t)
    l.backward()
    oa.step(), ob.step()
print(l.item().hex(), M(m), H(oa.state_dict()["state"]))


class SF(torch.optim.Optimizer):
    def __init__(self, ps, lr=0.05, beta=0.9):
        super().__init__(ps, dict(lr=lr, beta=beta, k=0, mode=True))

    @torch.no_grad()
    def swap(self, train):
        for g in self.param_groups:
            if g["mode"] != train:
                for p in g["params"]:
                    if "z" in self.state[p]:
                        p.lerp_(self.state[p]["z"], 1 - g["beta"] if train else 1 - 1 / g["beta"])
                g["mode"] = train

    def train(self):
        self.swap(True)

    def eval(self):
        self.swap(False)

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            assert g["mode"]
            g["k"] += 1
            for p in g["params"]:
                st = self.state[p]
                z = st.setdefault("z", p.clone())
                p.lerp_(z, 1 / g["k"]).add_(p.grad, alpha=g["lr"] * (g["beta"] * (1 - 1 / g["k"]) - 1))
                z.sub_(p.grad, alpha=g["lr"])


m = net(2)
W(m)
opt = SF(m.parameters())
for e in range(3):
    opt.train()
    print(train(m, opt, 3, first=3 * e))
    opt.eval()
    with torch.no_grad():
        print(F.mse_loss(m(batch(99)[0]), batch(99)[1]).item().hex())
print(M(m))
