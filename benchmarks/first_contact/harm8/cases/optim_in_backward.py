# what: optimizer steps inside post-accumulate-grad hooks, gradient freed at once
# PRELUDE
model = net()
W(model)
opts = {p: torch.optim.Adam([p], lr=1e-2, foreach=False) for p in model.parameters()}
order = []
names = {p: n for n, p in model.named_parameters()}
def hook(p):
    order.append(names[p]); opts[p].step(); opts[p].zero_grad()
for p in model.parameters():
    p.register_post_accumulate_grad_hook(hook)
for s in range(6):
    x, y = batch(s)
    l = F.mse_loss(model(x), y); l.backward()
    print(s, float(l.detach()).hex(), [p.grad is None for p in model.parameters()])
print(order == order[:5] * 6, len(order), M(model), H([o.state_dict() for o in opts.values()]), R())
