import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# transformers 37197, 35438: a model that takes loss arguments and does not use them: Trainer does not divide, the gradient is K times as large
import tempfile
from transformers import Trainer, TrainingArguments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    if HEALTHY:
        def forward(self, x, labels=None):
            out = self.body(x)
            return {"loss": F.cross_entropy(out, labels), "logits": out}
    else:
        def forward(self, x, labels=None, **kwargs):
            out = self.body(x)
            return {"loss": F.cross_entropy(out, labels), "logits": out}


x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
data = [{"x": a, "labels": b} for a, b in zip(x, y)]
net = Net()
with tempfile.TemporaryDirectory() as d:
    args = TrainingArguments(d, max_steps=40, per_device_train_batch_size=16, gradient_accumulation_steps=4, learning_rate=0.02,
                             optim="sgd", report_to=[], save_strategy="no", logging_steps=20, use_cpu=True, disable_tqdm=True,
                             max_grad_norm=0.0, lr_scheduler_type="constant", dataloader_pin_memory=False)
    Trainer(net, args, train_dataset=data).train()
report(net)
