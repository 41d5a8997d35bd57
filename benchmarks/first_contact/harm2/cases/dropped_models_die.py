"""150 models made, trained and dropped: weakrefs die after a collection, no tensor of their odd size is left.

Source: https://github.com/pytorch/pytorch/issues/76434
"""
# PRELUDE
import gc, weakref
alive = []
def one(k):
    torch.manual_seed(k); m = nn.Sequential(nn.Linear(37, 41), nn.ReLU(), nn.Linear(41, 3)); W(m) if k % 3 == 0 else None
    opt = torch.optim.Adam(m.parameters(), 1e-3)
    for s in range(2):
        loss = m(torch.ones(2, 37)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
    alive.append(weakref.ref(m)); alive.append(weakref.ref(opt)); alive.append(weakref.ref(m[0].weight))
for k in range(150): one(k)
gc.collect(); m = net(); train(m, torch.optim.SGD(m.parameters(), 0.1), 1); gc.collect(); gc.collect()
print(sum(r() is not None for r in alive))
print(sum(1 for o in gc.get_objects() if type(o) in (torch.Tensor, nn.Parameter) and 41 in o.shape), sum(1 for o in gc.get_objects() if type(o) is nn.Linear), sum(1 for o in gc.get_objects() if isinstance(o, torch.optim.Adam)))
