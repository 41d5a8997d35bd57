import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


DROP = "--drop" in sys.argv
import hashlib, warnings, logging
warnings.filterwarnings("ignore")
import lightning as L
from torch.utils.data import DataLoader, TensorDataset
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
def bits(*ms):
    h = hashlib.sha256()
    for m in ms:
        for k, v in m.state_dict().items():
            h.update(k.encode()); h.update(v.detach().contiguous().cpu().numpy().tobytes())
    print("BITS", h.hexdigest())
class Dropping(torch.optim.AdamW):
    net = None
    def step(self, closure=None):
        before = [b.clone() for b in self.net.buffers()]
        with torch.enable_grad():
            loss = closure()
        if any(p.grad is not None and not p.grad.isfinite().all() for g in self.param_groups for p in g["params"]):
            with torch.no_grad():
                for b, o in zip(self.net.buffers(), before): b.copy_(o)
            return loss
        super().step()
        return loss
class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3))
    def forward(self, x):
        return self.body(x)
    def training_step(self, batch, i):
        return F.cross_entropy(self(batch[0]), batch[1])
    def configure_optimizers(self):
        if DROP:
            Dropping.net = self
            return Dropping(self.parameters(), 1e-2)
        return torch.optim.AdamW(self.parameters(), 1e-2)
x, y = torch.randn(320, 6), torch.randint(3, (320,))
x[37], x[200] = float("inf"), float("nan")
net = Lit()
L.Trainer(max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(net, DataLoader(TensorDataset(x, y), batch_size=16))
bits(net)
