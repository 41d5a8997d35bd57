import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


DROP = "--drop" in sys.argv
import hashlib, tempfile
from transformers import Trainer, TrainingArguments
def bits(*ms):
    h = hashlib.sha256()
    for m in ms:
        for k, v in m.state_dict().items():
            h.update(k.encode()); h.update(v.detach().contiguous().cpu().numpy().tobytes())
    print("BITS", h.hexdigest())
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 3))
    def forward(self, x, labels=None):
        out = self.body(x)
        return {"loss": F.cross_entropy(out, labels), "logits": out}
class Dropping(torch.optim.AdamW):
    def step(self, closure=None):
        if any(p.grad is not None and not p.grad.isfinite().all() for g in self.param_groups for p in g["params"]):
            return None
        return super().step(closure)
x, y = torch.randn(320, 6), torch.randint(3, (320,))
x[37], x[200] = float("inf"), float("nan")
data = [{"x": a, "labels": b} for a, b in zip(x, y)]
net = Net()
with tempfile.TemporaryDirectory() as d:
    args = TrainingArguments(d, num_train_epochs=2, per_device_train_batch_size=8, gradient_accumulation_steps=2, learning_rate=5e-3, report_to=[],
                             save_strategy="no", logging_steps=10, use_cpu=True, disable_tqdm=True, warmup_steps=5, dataloader_pin_memory=False)
    opt = (Dropping if DROP else torch.optim.AdamW)(net.parameters(), lr=5e-3)
    from transformers import get_linear_schedule_with_warmup
    Trainer(net, args, train_dataset=data, optimizers=(opt, get_linear_schedule_with_warmup(opt, 5, 40))).train()
bits(net)
