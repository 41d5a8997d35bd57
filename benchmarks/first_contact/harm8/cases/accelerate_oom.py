# what: accelerate's find_executable_batch_size: an allocation error in the model halves the batch; the model and graph are made anew
# cmp: status stdout files left
# PRELUDE
import warnings, gc, weakref; warnings.simplefilter("ignore")
from accelerate.utils import find_executable_batch_size
from accelerate import Accelerator
acc = Accelerator(cpu=True); refs = []
class Net(nn.Module):
    def __init__(self): super().__init__(); self.f = net()
    def forward(self, x):
        if len(x) > 4: torch.empty(1 << 48)
        return self.f(x)
@find_executable_batch_size(starting_batch_size=16)
def go(bs):
    acc.free_memory(); print(bs); model = Net(); W(model); opt = torch.optim.Adam(model.parameters(), lr=.01); model, opt = acc.prepare(model, opt)
    for s in range(4):
        x, y = batch(s, n=bs)
        with acc.accumulate(model): opt.zero_grad(); l = F.mse_loss(model(x), y); acc.backward(l); print(acc.clip_grad_norm_(model.parameters(), 1.).item().hex()); opt.step()
    return M(model)
print(go(), R())
