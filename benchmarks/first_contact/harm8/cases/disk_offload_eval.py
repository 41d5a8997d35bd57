# what: accelerate cpu_offload / disk_offload of an evaluation copy (weights on meta, moved in by hooks), a nan in it, between training steps
# benign: yes
# cmp: status stdout files left
# PRELUDE
import warnings, copy; warnings.simplefilter("ignore")
from accelerate import cpu_offload, disk_offload, init_empty_weights, load_checkpoint_and_dispatch
from accelerate.hooks import remove_hook_from_submodules
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
    def forward(self, x): return self.b(torch.tanh(self.a(x)))
m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1)
for e in range(3):
    print(train(m, opt, 2, 2 * e)); c = copy.deepcopy(m).eval(); cpu_offload(c, torch.device("cpu")); x = batch(40)[0]
    with torch.no_grad(): print(H(c(x)), c.a.weight.device, c(x * float("inf")).isnan().any().item())
    c = copy.deepcopy(m).eval(); disk_offload(c, f"off{e}", torch.device("cpu"))
    with torch.no_grad(): print(H(c(x)), c(x * float("nan")).isnan().all().item())
    remove_hook_from_submodules(c); torch.save(m.state_dict(), "w.bin")
    with init_empty_weights(): z = Net()
    z = load_checkpoint_and_dispatch(z, "w.bin", device_map={"": "cpu"}); print(H(z(x).detach()))
print(M(m), R())
