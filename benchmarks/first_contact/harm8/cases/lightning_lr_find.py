# what: Lightning's Tuner.lr_find up to 1e30 with early_stop_threshold=None: the loss is nan for a while, then the state is restored
# benign: yes
# watch: no
# cmp: status stdout left
# PRELUDE
import warnings, logging; warnings.simplefilter("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning as L
from lightning.pytorch.tuner import Tuner
class Lit(L.LightningModule):
    def __init__(self): super().__init__(); self.f = net(); self.lr = .1
    def training_step(self, b, i): return F.mse_loss(self.f(b[0]), b[1])
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=self.lr)
class D(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, i): return batch(i)
m = Lit(); dl = torch.utils.data.DataLoader(D(), batch_size=None); t = L.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
f = Tuner(t).lr_find(m, dl, min_lr=1e-3, max_lr=1e30, num_training=20, early_stop_threshold=None, update_attr=False); print(str(f.suggestion()), H([str(v) for v in f.results["loss"]])); t.fit(m, dl); print(M(m))
