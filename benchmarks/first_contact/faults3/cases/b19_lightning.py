"""Lightning with EarlyStopping and ModelCheckpoint (both start at inf) and a metric that is nan on an empty subset.
Source: Lightning-AI/pytorch-lightning EarlyStopping (torch.tensor(torch.inf)), its check_finite."""
import math, logging, warnings, tempfile, torch
from torch import nn
import lightning as L
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
torch.set_num_threads(1)
L.seed_everything(19, verbose=False)


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
        self.history = []

    def training_step(self, batch, step):
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.history.append(loss.item())
        return loss

    def validation_step(self, batch, step):
        x, y = batch
        err = (self.net(x) - y).pow(2)
        self.log("val", err.mean())
        self.log("val_rare", err[x[:, 0] > 9].mean())  # nobody

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


x = torch.randn(256, 5)
y = x[:, :1] * 0.7 - x[:, 1:2].abs()
data = lambda a, b: torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[a:b], y[a:b]), batch_size=32)
model = Lit()
L.Trainer(max_epochs=6, logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", default_root_dir=tempfile.mkdtemp(),
          callbacks=[EarlyStopping("val", patience=3), ModelCheckpoint(monitor="val")]).fit(model, data(0, 192), data(192, 256))
h = model.history
print(h[0], h[-1], "FINITE", all(map(math.isfinite, h)) and all(bool(p.isfinite().all()) for p in model.parameters()))
