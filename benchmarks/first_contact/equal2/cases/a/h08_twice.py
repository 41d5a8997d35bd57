# exact, resumed twice (legs of 10, 10 and 10 steps): Lightning with ckpt_path, its own order by step
# stops: 10 20 30
import hashlib, os, sys, warnings, logging
warnings.filterwarnings("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import torch, lightning as L
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 200
class M(L.LightningModule):
    def __init__(self): super().__init__(); torch.manual_seed(8); self.a = torch.nn.Linear(6, 24); self.b = torch.nn.Linear(24, 6)
    def training_step(self, x, i):
        loss = (self.b(self.a(x).tanh()) - x).square().mean(); print(self.trainer.global_step + 1, repr(loss.item()), flush=True); return loss
    def configure_optimizers(self): o = torch.optim.Adam(self.parameters(), 1e-2); return [o], [{"scheduler": torch.optim.lr_scheduler.StepLR(o, 4), "interval": "step"}]
m = M(); t = L.Trainer(max_epochs=stop // 5, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[L.pytorch.callbacks.ModelCheckpoint("w", save_last=True, every_n_epochs=1, save_on_train_epoch_end=True)])
t.fit(m, torch.utils.data.DataLoader(torch.randn(20, 6, generator=torch.Generator().manual_seed(2)), batch_size=4), ckpt_path="w/last.ckpt" if os.path.exists("w/last.ckpt") else None)
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in m.parameters())).hexdigest()[:16])
