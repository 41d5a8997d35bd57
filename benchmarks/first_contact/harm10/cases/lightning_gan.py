#: what: Lightning: manual optimization of two optimizers with toggle, EarlyStopping(check_finite) that ends the fit at a nan validation metric, checkpoint callback, CSV log compared
#: benign: nan validation metric that ends the fit by itself
#: source: https://github.com/Lightning-AI/pytorch-lightning/pull/6294
# PRELUDE
import warnings, logging; warnings.filterwarnings("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning as L; from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint; from lightning.pytorch.loggers import CSVLogger; from torch.utils.data import DataLoader, TensorDataset
class GAN(L.LightningModule):
    def __init__(self): super().__init__(); self.automatic_optimization = False; self.g = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2)); self.d = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    def training_step(self, b, i):
        og, od = self.optimizers(); x = b[0]; self.toggle_optimizer(og); lg = F.softplus(-self.d(self.g(torch.randn_like(x)))).mean(); og.zero_grad(); self.manual_backward(lg); og.step(); self.untoggle_optimizer(og)
        self.toggle_optimizer(od); ld = F.softplus(-self.d(x)).mean() + F.softplus(self.d(self.g(torch.randn_like(x)).detach())).mean(); od.zero_grad(); self.manual_backward(ld); od.step(); self.untoggle_optimizer(od); self.log_dict({"g": lg, "d": ld})
    def validation_step(self, b, i): f = self.g(torch.randn_like(b[0])); v = f.std(0).mean() if self.current_epoch < 2 else (f - f).sum() / (f - f).sum(); self.log("val", v)
    def configure_optimizers(self): return torch.optim.Adam(self.g.parameters(), 1e-3, (0.5, 0.9)), torch.optim.Adam(self.d.parameters(), 1e-3, (0.5, 0.9))
m = GAN(); dl = DataLoader(TensorDataset(torch.randn(24, 2) + 1), 8); watch(m); es = EarlyStopping("val", check_finite=True, patience=9)
t = L.Trainer(max_epochs=6, accelerator="cpu", logger=CSVLogger("logs", name="a", version=0), callbacks=[es, ModelCheckpoint("ck", filename="{epoch}", save_top_k=-1, save_weights_only=True)], enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1, num_sanity_val_steps=1); t.fit(m, dl, dl)
print(es.stopped_epoch, t.current_epoch, {k: float(v) for k, v in t.callback_metrics.items()}, sorted(os.listdir("ck"))); show(m)
