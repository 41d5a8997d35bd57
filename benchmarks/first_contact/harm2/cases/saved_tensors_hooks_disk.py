"""saved_tensors_hooks that write each saved tensor to disk: number of packs and unpacks, names and bits of the files.

Source: https://github.com/pytorch/pytorch/issues/129867
"""
# PRELUDE
m = net(); W(m)
n = [0, 0]
def pack(t):
    n[0] += 1; f = f"s{n[0]:03d}.pt"; torch.save(t.detach().clone(), f); return f
def unpack(f):
    n[1] += 1; return torch.load(f)
opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(2):
    x, y = batch(s)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = F.mse_loss(m(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    print(n, float(loss.detach()).hex())
with torch.autograd.graph.save_on_cpu():
    F.mse_loss(m(x), y).backward()
with torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
    F.mse_loss(m(x), y).backward()
print(M(m), n)
