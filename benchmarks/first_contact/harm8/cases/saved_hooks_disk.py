# what: saved_tensors_hooks write activations to files, counted
# PRELUDE
import glob
model = net(); W(model)
opt = torch.optim.SGD(model.parameters(), lr=.1)
n = {"pack": 0, "unpack": 0}
os.makedirs("act")
def pack(t):
    name = f"act/{n['pack']}.pt"; n["pack"] += 1; torch.save(t.detach().clone(), name); return name
def unpack(name):
    n["unpack"] += 1; return torch.load(name)
for s in range(4):
    x, y = batch(s); opt.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        l = F.mse_loss(model(x), y)
    l.backward(); opt.step(); print(n, float(l.detach()).hex())
with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
    x, y = batch(9); l = F.mse_loss(model(x), y); opt.zero_grad(); l.backward(); opt.step(); print(float(l.detach()).hex())
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack): pass
        print("no error")
    except RuntimeError as e: print(e)
print(M(model), R())
