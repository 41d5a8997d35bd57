from _training import *
import lightning as L, logging, warnings; warnings.filterwarnings("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
class M(L.LightningModule):
    def __init__(s): super().__init__(); s.net = mlp(16, 64, 4); s.lrs = []
    def training_step(s, b, i): return F.cross_entropy(s.net(b[0]), b[1])
    def configure_optimizers(s):
        o = torch.optim.SGD(s.parameters(), .1); return [o], [{"scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(o, 300), "interval": "step"}]
    def optimizer_step(s, epoch, bi, optimizer, closure=None):
        if not H or s.trainer.global_step < 30:
            f = min(1., (s.trainer.global_step + 1) / 30)
            for g in optimizer.param_groups: g["lr"] = f * .1
        s.lrs.append(optimizer.param_groups[0]["lr"]); optimizer.step(closure=closure)
dl = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*blobs(1600, s=2.)), 32, shuffle=True); m = M()
L.Trainer(max_steps=300, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(m, dl)
truth(last_lr=m.lrs[-1])
