"""GaLore: an own AdamW that projects gradients by SVD, refreshes its projector, replaces p.grad for the update, with per-layer updates in post-accumulate hooks as well."""
# PRELUDE
class GaLore(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, rank=4, gap=3):
        super().__init__(params, dict(lr=lr, rank=rank, gap=gap))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                st, grad = self.state[p], p.grad
                st["step"] = st.get("step", 0) + 1
                proj = p.dim() == 2 and min(p.shape) > g["rank"]
                if proj:
                    if "U" not in st or st["step"] % g["gap"] == 0:
                        st["U"] = torch.linalg.svd(grad, full_matrices=False)[0][:, : g["rank"]]
                    grad = st["U"].t() @ grad
                if "m" not in st:
                    st["m"], st["v"] = torch.zeros_like(grad), torch.zeros_like(grad)
                st["m"].mul_(0.9).add_(grad, alpha=0.1)
                st["v"].mul_(0.99).addcmul_(grad, grad, value=0.01)
                up = st["m"] / (st["v"].sqrt() + 1e-8)
                if proj:
                    up = st["U"] @ up * 0.25
                p.add_(up, alpha=-g["lr"])


m = net(5, h=12)
W(m)
opt = GaLore(m.parameters())
print(train(m, opt, 7))
per = {p: GaLore([p], lr=5e-3) for p in m.parameters()}
for p in m.parameters():
    def hook(p):
        per[p].step()
        per[p].zero_grad()
    p.register_post_accumulate_grad_hook(hook)
for s in range(5):
    x, y = batch(30 + s)
    F.mse_loss(m(x), y).backward()
print([p.grad is None for p in m.parameters()], M(m), H([opt.state[p] for p in m.parameters()]), R())
torch.save(opt.state_dict(), "opt.pt")
