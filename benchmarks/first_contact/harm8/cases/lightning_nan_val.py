# what: Lightning: nan in validation metrics, EarlyStopping(check_finite=False), ModelCheckpoint on a nan monitor, manual optimization with skipped steps
# benign: yes
# watch: no
# cmp: status stdout left
# PRELUDE
import warnings, logging; warnings.simplefilter("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning as L
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
class Lit(L.LightningModule):
    def __init__(self): super().__init__(); self.f = net(); self.automatic_optimization = False; self.log_ = []; W(self)
    def training_step(self, b, i):
        opt = self.optimizers(); x, y = b; l = F.mse_loss(self.f(x), y) * (float("nan") if i == 1 else 1.); self.log_.append(l.item().hex() if l.isfinite() else "nan")
        if l.isfinite(): opt.zero_grad(); self.manual_backward(l); self.clip_gradients(opt, 1., "norm"); opt.step()
    def validation_step(self, b, i): x, y = b; o = self.f(x); self.log("v", (o * 0).sum() / (o * 0).sum()); self.log("w", F.mse_loss(o, y))
    def configure_optimizers(self): return torch.optim.Adam(self.parameters(), lr=.01)
class D(torch.utils.data.Dataset):
    def __len__(self): return 5
    def __getitem__(self, i): return batch(i)
m = Lit(); ck = ModelCheckpoint("ck", monitor="v", save_top_k=2, filename="{epoch}"); t = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[EarlyStopping("v", patience=5, check_finite=False), ck]); dl = torch.utils.data.DataLoader(D(), batch_size=None)
t.fit(m, dl, dl); print(m.log_, {k: str(v.item()) for k, v in t.callback_metrics.items()}, sorted(os.listdir("ck")), M(m), R())
