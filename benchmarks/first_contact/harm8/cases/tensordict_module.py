# what: tensordict modules and TensorDictParams, memory-mapped tensordicts on disk, functional swaps by to_module
# cmp: status stdout files left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
from tensordict import TensorDict, TensorDictParams
from tensordict.nn import TensorDictModule, TensorDictSequential
m = TensorDictSequential(TensorDictModule(nn.Linear(8, 16), ["x"], ["h"]), TensorDictModule(nn.Sequential(nn.Tanh(), nn.Linear(16, 4)), ["h"], ["o"])); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1)
data = TensorDict({"x": torch.stack([batch(s)[0] for s in range(4)]), "y": torch.stack([batch(s)[1] for s in range(4)])}, [4, 6]).memmap("mm")
for s in range(4):
    td = data[s].clone(); opt.zero_grad(); m(td); l = F.mse_loss(td["o"], td["y"]); l.backward(); opt.step(); print(float(l.detach()).hex(), sorted(td.keys()))
ps = TensorDict.from_module(m); fast = (ps.data * .5)
with fast.to_module(m), torch.no_grad(): print(H(m(data[0].clone())["o"]))
ens = torch.stack([ps.data, ps.data * 2])
def f(p, td):
    with p.to_module(m): return m(td)
print(H(torch.vmap(f, (0, None))(ens, data[1].clone())["o"]), M(m), R())
