# NVIDIA/NeMo style callback: Lightning with an averaging callback that has no state of its own; its copy begins again from the weights (m2lines/Samudra#282, luxonis/luxonis-train#156)
# stops: 10 20
import copy, hashlib, os, sys, warnings, logging
warnings.filterwarnings("ignore"); logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
import torch, pytorch_lightning as pl
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 200
class EmaCallback(pl.Callback):
    avg = None; pending = None
    def on_train_start(self, tr, m):
        self.avg = torch.optim.swa_utils.AveragedModel(m.body, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        if self.pending: self.avg.load_state_dict(self.pending)
    def on_train_batch_end(self, tr, m, *a): self.avg.update_parameters(m.body)
    def state_dict(self): return {} if fault or self.avg is None else {"avg": self.avg.state_dict()}
    def load_state_dict(self, s): self.pending = copy.deepcopy(s.get("avg"))
class Net(pl.LightningModule):
    def __init__(self): super().__init__(); torch.manual_seed(18); self.body = torch.nn.Sequential(torch.nn.Linear(6, 20), torch.nn.Mish(), torch.nn.Linear(20, 2))
    def training_step(self, x, i):
        loss = torch.nn.functional.cross_entropy(self.body(x), (x.sum(1) > 0).long()); print(self.trainer.global_step + 1, repr(loss.item()), flush=True); return loss
    def configure_optimizers(self): return torch.optim.RMSprop(self.parameters(), 1e-3)
m = Net(); cb = EmaCallback(); loader = torch.utils.data.DataLoader(torch.randn(20, 6, generator=torch.Generator().manual_seed(2)), batch_size=4)
t = pl.Trainer(max_epochs=stop // 5, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[cb, pl.callbacks.ModelCheckpoint("ckpts", save_last=True, every_n_epochs=1, save_on_train_epoch_end=True)])
t.fit(m, loader, ckpt_path="ckpts/last.ckpt" if os.path.exists("ckpts/last.ckpt") else None)
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for q in (m.body, cb.avg.module) for p in q.parameters())).hexdigest()[:16])
