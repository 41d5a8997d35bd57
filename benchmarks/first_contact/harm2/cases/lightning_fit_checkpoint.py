"""A Lightning Trainer: fit, validation, CSV log, checkpoint; metrics, callbacks' order, files but for times.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/4188 (order of backward and step)
"""
# PRELUDE
import warnings, logging
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning as L
class Mod(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.n = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    def training_step(self, b, i):
        loss = F.mse_loss(self.n(b[0]), b[1])
        self.log("a", loss)
        return loss
    def validation_step(self, b, i):
        self.log("v", F.mse_loss(self.n(b[0]), b[1]))
    def configure_optimizers(self):
        o = torch.optim.Adam(self.parameters(), 1e-2)
        return [o], [torch.optim.lr_scheduler.StepLR(o, 1)]
class Order(L.Callback):
    def on_before_backward(self, *a): print("before_backward", end=" ")
    def on_after_backward(self, *a): print("after_backward", end=" ")
    def on_before_optimizer_step(self, *a): print("before_step", end=" ")
    def on_before_zero_grad(self, *a): print("zero", end=" ")
L.seed_everything(1, verbose=False)
ds = torch.utils.data.TensorDataset(torch.randn(16, 8), torch.randn(16, 4))
dl = torch.utils.data.DataLoader(ds, 4, shuffle=True)
t = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[Order()], accumulate_grad_batches=2, gradient_clip_val=0.5)
m = Mod()
t.fit(m, dl, dl)
print()
print({k: float(v).hex() for k, v in t.callback_metrics.items()}, t.global_step, M(m), R())
ck = torch.load("w.ckpt", weights_only=False) if t.save_checkpoint("w.ckpt") else torch.load("w.ckpt", weights_only=False)
print(sorted(ck), H(ck["state_dict"]))
os.remove("w.ckpt")
