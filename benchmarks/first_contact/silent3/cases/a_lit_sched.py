"""Lightning: OneCycleLR(total_steps=all batches) is returned without "interval": "step": it is stepped once an epoch, so the rate
stays at its first, small value.
Source: https://github.com/Lightning-AI/pytorch-lightning/issues/5631
Truth: the rate after 120 steps is 1e-3, still in the warm-up of the cycle (healthy: it has been at 1e-2 and ends at 4e-6).
Could a tool know: yes: a schedule of 120 steps has been stepped 6 times in 120 optimizer steps.
"""
import logging
import sys
import warnings
import torch
from torch import nn
import lightning as L
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
HEALTHY = "--healthy" in sys.argv
L.seed_everything(0, verbose=False)
torch.set_num_threads(1)


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 4))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, i):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=1e-2, momentum=0.9)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-2, total_steps=120)
        return [opt], [{"scheduler": sched, "interval": "step"} if HEALTHY else sched]


x = torch.randn(640, 12)
y = (x @ torch.randn(12, 4)).argmax(1)
model = Lit()
trainer = L.Trainer(max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                    enable_model_summary=False)
trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True))
print(f"steps {trainer.global_step} rate at the end {trainer.optimizers[0].param_groups[0]['lr']:.2e}")
