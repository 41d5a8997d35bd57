"""jdb78/pytorch-forecasting (MAPE loss): relative error of a target of zero, lightning module
TRUTH op=aten.div reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

import lightning as L, logging
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
class Fc(L.LightningModule):
    def __init__(self):
        super().__init__(); self.l, self.o = nn.LSTM(1, 16, batch_first=True), nn.Linear(16, 1); self.last = torch.zeros(())
    def training_step(self, batch, i):
        x, y = batch; p = self.o(self.l(x)[0][:, -1]).squeeze(1)
        den = y.abs().clamp(min=1e-3) if CURED else y.abs()
        loss = ((p - y).abs() / den).mean()  # FAULT
        self.last = loss.detach(); return loss
    def configure_optimizers(self): return torch.optim.Adam(self.parameters(), 1e-3)
x = torch.rand(32, 12, 1); y = torch.rand(32) + 0.1; y[21] = 0.0
m = Fc(); L.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu").fit(m, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8))
done(m.last, m)
