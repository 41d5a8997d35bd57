"""Lightning with a CombinedLoader of two loaders, a datamodule whose loaders are made again each epoch, a Timer, GradientAccumulationScheduler, EarlyStopping on a callback metric, hooks that log their order (on_before_zero_grad, configure_gradient_clipping, optimizer_step, lr_scheduler_step), validate, predict and resuming from last.ckpt."""
import logging, warnings
# PRELUDE
warnings.simplefilter("ignore")
import lightning as L
from lightning.pytorch.callbacks import EarlyStopping, GradientAccumulationScheduler, ModelCheckpoint, Timer
from lightning.pytorch.utilities import CombinedLoader

for n in ("lightning", "lightning.pytorch", "lightning.fabric"):
    logging.getLogger(n).setLevel(logging.ERROR)
log = []


class Data(L.LightningDataModule):
    def loader(self, a, n):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*batch(a, n)), batch_size=4)

    def train_dataloader(self):
        log.append("train_dataloader")
        return CombinedLoader({"a": self.loader(1, 16), "b": self.loader(2, 8)}, "max_size_cycle")

    def val_dataloader(self):
        return [self.loader(3, 8), self.loader(4, 8)]

    def predict_dataloader(self):
        return self.loader(5, 8)


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = net(3)

    def forward(self, x):
        return self.body(x)

    def training_step(self, b, i):
        loss = F.mse_loss(self(b["a"][0]), b["a"][1]) + 0.5 * F.l1_loss(self(b["b"][0]), b["b"][1])
        self.log("train", loss)
        return loss

    def validation_step(self, b, i, dataloader_idx=0):
        self.log("val", F.mse_loss(self(b[0]), b[1]), add_dataloader_idx=True)

    def predict_step(self, b, i):
        return self(b[0])

    def on_before_zero_grad(self, opt):
        log.append("zero")

    def configure_gradient_clipping(self, opt, gradient_clip_val=None, gradient_clip_algorithm=None):
        log.append("clip")
        self.clip_gradients(opt, 0.5, "norm")

    def optimizer_step(self, *a, **k):
        log.append("step")
        return super().optimizer_step(*a, **k)

    def lr_scheduler_step(self, sched, metric):
        log.append(("sched", None if metric is None else float(metric).hex()))
        super().lr_scheduler_step(sched, metric)

    def configure_optimizers(self):
        o = torch.optim.Adam(self.parameters(), 1e-2)
        return {"optimizer": o, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0), "monitor": "val/dataloader_idx_0"}}


L.seed_everything(3, verbose=False)
m = Lit()
W(m)
kw = dict(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=1, reload_dataloaders_every_n_epochs=1, barebones=False)
t = L.Trainer(max_epochs=3, callbacks=[Timer(duration="00:00:10:00"), GradientAccumulationScheduler({0: 1, 1: 2}), EarlyStopping("val/dataloader_idx_1", patience=5), ModelCheckpoint("ck", save_last=True, save_top_k=1, monitor="val/dataloader_idx_0", mode="min", filename="best")], **kw)
t.fit(m, datamodule=Data())
print(t.global_step, {k: float(v).hex() for k, v in t.callback_metrics.items()}, M(m), len(log), H([str(x) for x in log]), sorted(os.listdir("ck")))
print([{k: float(v).hex() for k, v in d.items()} for d in t.validate(m, datamodule=Data(), verbose=False)])
print([H(p) for p in t.predict(m, datamodule=Data())])
sd = torch.load("ck/last.ckpt", weights_only=False)
print(sorted(sd), H({k: v for k, v in sd["state_dict"].items()}))
t2 = L.Trainer(max_epochs=5, callbacks=[ModelCheckpoint("ck", save_last=True)], **kw)
m2 = Lit()
W(m2)
t2.fit(m2, datamodule=Data(), ckpt_path="ck/last.ckpt", weights_only=False)
print(t2.global_step, M(m2), log[-6:], R())
import shutil
shutil.rmtree("ck")
