# what: a learning-rate range test that runs until the loss is nan, then restores model and optimizer and trains
# benign: yes
# PRELUDE
import copy, math
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=1e-3)
saved = copy.deepcopy(model.state_dict()), copy.deepcopy(opt.state_dict())
lr, hist = 1e-3, []
for s in range(40):
    for g in opt.param_groups: g["lr"] = lr
    x, y = batch(s % 4); opt.zero_grad(); l = F.mse_loss(model(x), y); v = float(l.detach())
    if not math.isfinite(v): print("diverged at", s); break
    hist.append(v); l.backward(); opt.step(); lr *= 10
print(len(hist), H(hist))
model.load_state_dict(saved[0]); opt.load_state_dict(saved[1])
for g in opt.param_groups: g["lr"] = .05
print(train(model, opt), M(model), R())
