# Lightning-AI/pytorch-lightning#5486: load_from_checkpoint, then fit with no ckpt_path: moments and schedule begin again
# stops: 10 20
import hashlib, os, sys, warnings, logging
warnings.filterwarnings("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import torch, lightning as L
from torch.utils.data import DataLoader
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 200
class Lit(L.LightningModule):
    def __init__(self, gamma=0.9): super().__init__(); self.save_hyperparameters(); torch.manual_seed(17); self.f = torch.nn.Linear(6, 20); self.g = torch.nn.Linear(20, 6)
    def training_step(self, x, i):
        loss = (self.g(self.f(x).relu()) - x.flip(1)).square().mean(); print(base + self.trainer.global_step + 1, repr(loss.item()), flush=True); return loss
    def configure_optimizers(self):
        o = torch.optim.Adam(self.parameters(), 1e-2); return [o], [{"scheduler": torch.optim.lr_scheduler.ExponentialLR(o, self.hparams.gamma), "interval": "step"}]
last = "w/last.ckpt" if os.path.exists("w/last.ckpt") else None; base = 0
model = Lit.load_from_checkpoint(last) if last else Lit()
if last and fault: base = torch.load(last, weights_only=False)["global_step"]
loader = DataLoader(torch.randn(20, 6, generator=torch.Generator().manual_seed(2)), batch_size=4)
t = L.Trainer(max_epochs=(stop - base) // 5, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[L.pytorch.callbacks.ModelCheckpoint("w", save_last=True, every_n_epochs=1, save_on_train_epoch_end=True)])
t.fit(model, loader, ckpt_path=None if fault else last)
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16])
