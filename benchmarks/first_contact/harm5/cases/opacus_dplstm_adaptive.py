"""Opacus: DPLSTM with per-layer clipping, ModuleValidator.fix on batch norm, BatchMemoryManager, the accountant's epsilon, checkpoint of the privacy engine."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
from opacus import PrivacyEngine
from opacus.layers import DPLSTM
from opacus.validators import ModuleValidator
from opacus.utils.batch_memory_manager import BatchMemoryManager
class Char(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.l, self.o = nn.Embedding(20, 8), DPLSTM(8, 8, batch_first=True), nn.Linear(8, 4)
    def forward(self, x):
        return self.o(self.l(self.e(x))[0][:, -1])
fixed = ModuleValidator.fix(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
print(type(fixed[1]).__name__)
m = Char()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
ds = torch.utils.data.TensorDataset(torch.randint(0, 20, (32, 7)), torch.randint(0, 4, (32,)))
dl = torch.utils.data.DataLoader(ds, 8)
pe = PrivacyEngine(accountant="rdp")
m, opt, dl = pe.make_private(module=m, optimizer=opt, data_loader=dl, noise_multiplier=1.0, max_grad_norm=[1.0] * len(list(m.parameters())), clipping="per_layer", poisson_sampling=True, noise_generator=torch.Generator().manual_seed(1))
for ep in range(2):
    with BatchMemoryManager(data_loader=dl, max_physical_batch_size=4, optimizer=opt) as mem:
        for x, y in mem:
            if not len(x):
                continue
            opt.zero_grad()
            loss = F.cross_entropy(m(x), y)
            loss.backward()
            opt.step()
    print(ep, float(loss).hex(), pe.get_epsilon(1e-5).hex())
pe.save_checkpoint(path="dp.pt", module=m, optimizer=opt)
print(H(dict(m.state_dict())), R())
