"""A LightningModule that divides its error by the batch's target std: a constant batch.
Source: Own: an error normalised by a constant batch's std, in Lightning."""
import sys
import logging
import warnings
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Forecast(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.LSTM(1, 8, batch_first=True)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        h, _ = self.net(x)
        return self.out(h[:, -1]).squeeze(-1)

    def training_step(self, batch, _):
        x, y = batch
        spread = y.std()
        if CURED:
            spread = spread.clamp(min=1e-3)
        loss = ((self(x) - y) / spread).pow(2).mean()  # FAULT
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


x, y = torch.randn(32, 6, 1), torch.randn(32)
y[16:24] = 2.0
trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Forecast(), DataLoader(TensorDataset(x, y), batch_size=8))
print("loss", float(trainer.callback_metrics["loss"]))
