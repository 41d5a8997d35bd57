"""State dict hooks of all kinds, extra state, strict=False, assign=True, buffers that aren't persistent: order and keys.

Source: https://github.com/pytorch/pytorch/issues/76434
"""
# PRELUDE
log = []
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.l = nn.Linear(8, 4); self.register_buffer("t", torch.zeros(1), persistent=False); self.steps = 0
        self.register_state_dict_pre_hook(lambda m, p, k: log.append("pre " + p)); self.register_state_dict_post_hook(lambda m, sd, p, meta: sd.update({p + "more": torch.ones(1)}))
        self.register_load_state_dict_pre_hook(lambda m, sd, p, *a: sd.pop(p + "more", None)); self.register_load_state_dict_post_hook(lambda m, inc: log.append(str(inc)))
    def get_extra_state(self): log.append("get"); return {"steps": self.steps}
    def set_extra_state(self, s): log.append("set"); self.steps = s["steps"]
    def forward(self, x): self.steps += 1; self.t += 1; return self.l(x)
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 3))
sd = m.state_dict(); print(list(sd), sd._metadata, m.steps); torch.save(sd, "sd.pt")
k = Net(); W(k); print(k.load_state_dict(torch.load("sd.pt", weights_only=False)), k.steps, log); print(train(k, torch.optim.SGD(k.parameters(), 0.1), 2), H(k.t))
print(k.load_state_dict({"l.weight": torch.ones(4, 8)}, strict=False, assign=True), k.l.weight.sum(), train(k, torch.optim.SGD(k.parameters(), 0.1), 1), M(m))
