"""Lightning module with a log-cosh loss written as log(cosh(x)); an outlier in the targets.
Source: tuantle/regression-losses-pytorch (LogCoshLoss), BayesWitnesses/Keras' log_cosh uses softplus for this reason."""
import sys, math, logging, warnings
import torch
from torch import nn
import lightning as L

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
torch.set_num_threads(1)
L.seed_everything(57, verbose=False)
CURED = "--cured" in sys.argv


class Regressor(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.Mish(), nn.Linear(32, 1))
        self.history = []

    def log_cosh(self, d):
        if CURED:
            return (d + nn.functional.softplus(-2 * d) - math.log(2)).mean()
        return torch.log(torch.cosh(d + 1e-12)).mean()  # FAULT

    def training_step(self, batch, step):
        x, y = batch
        loss = self.log_cosh(self.net(x).squeeze(1) - y)
        self.history.append(loss.item())
        return loss

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=3e-3)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)}


x = torch.randn(192, 6)
y = x[:, 0] * 2 + x[:, 1].sin()
y[149] = -640.0
model = Regressor()
trainer = L.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", gradient_clip_val=1.0)
trainer.fit(model, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16))
print(model.history)
print("FINITE", all(map(math.isfinite, model.history)) and all(bool(t.isfinite().all()) for t in model.state_dict().values()))
