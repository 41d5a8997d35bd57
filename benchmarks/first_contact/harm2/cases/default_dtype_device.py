"""set_default_dtype(float64), default device context, DeviceContext in with, print options, changed in mid-run.

Source: https://github.com/pytorch/pytorch/issues/126533
"""
# PRELUDE
def batch(step):
    g = torch.Generator().manual_seed(step); k = dict(generator=g, dtype=torch.float32, device="cpu")
    return torch.randn(6, 8, **k), torch.randn(6, 4, **k)
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2))
torch.set_default_dtype(torch.float64); k = nn.Sequential(nn.Linear(8, 4)); W(k); o = torch.optim.Adam(k.parameters(), 1e-2)
for s in range(3): x, y = batch(s); loss = F.mse_loss(k(x.double()), y.double()); o.zero_grad(); loss.backward(); o.step(); print(loss.item().hex(), loss.dtype)
print(train(m, opt, 2)); torch.set_default_dtype(torch.bfloat16); print(train(m, opt, 2), torch.tensor(1.0).dtype); torch.set_default_device("meta"); print(torch.ones(1).device, torch.get_default_device())
with torch.device("cpu"): print(train(m, opt, 2), M(m))
torch.set_default_device(None); torch.set_default_dtype(torch.float32); print(train(m, opt, 1), M(k))
