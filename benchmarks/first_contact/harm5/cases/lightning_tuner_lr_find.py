"""Tuner.lr_find and scale_batch_size before fit: both train, save a checkpoint and restore it; then fit with the found values."""
# PRELUDE
import warnings, logging
warnings.filterwarnings("ignore")
import lightning as L
from lightning.pytorch.tuner import Tuner
class D(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        x, y = batch(i, 1)
        return x[0], y[0]
class Lit(L.LightningModule):
    def __init__(self, lr=1e-3, batch_size=4):
        super().__init__()
        self.save_hyperparameters()
        self.lr, self.batch_size = lr, batch_size
        self.m = net(3)
        self.drop = nn.Dropout(0.1)
    def training_step(self, b, i):
        loss = F.mse_loss(self.drop(self.m(b[0])), b[1])
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), self.lr)
    def train_dataloader(self):
        return torch.utils.data.DataLoader(D(), self.batch_size, shuffle=True)
m = Lit()
W(m)
L.seed_everything(4)
t = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=".", enable_checkpointing=True)
tu = Tuner(t)
r = tu.lr_find(m, min_lr=1e-5, max_lr=1e-1, num_training=20)
print(r.suggestion().hex(), H(r.results["loss"]), M(m))
b = tu.scale_batch_size(m, mode="power", steps_per_trial=2, max_trials=3, init_val=2)
print(b, M(m))
t.fit(m)
print(M(m), t.global_step, R(), sorted(os.listdir(".")))
