"""Lightning with strategy ddp and two devices started as a plain script: the launcher starts the second rank itself by running the same command again."""
# PRELUDE
import warnings, argparse
warnings.filterwarnings("ignore")
import lightning as L
lr = argparse.ArgumentParser()
lr.add_argument("--lr", type=float)
lr = lr.parse_args().lr
class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.m = net(3)
    def training_step(self, b, i):
        loss = F.mse_loss(self.m(b[0]), b[1])
        self.log("loss", loss, sync_dist=True, on_epoch=True, on_step=False)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr)
L.seed_everything(4)
m = Lit()
W(m)
x, y = batch(0, 20)
t = L.Trainer(max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=".", enable_checkpointing=True)
t.fit(m, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 2, shuffle=True))
if t.global_rank == 0:
    print(M(m), {k: float(v).hex() for k, v in t.callback_metrics.items()}, R(), sys.argv, t.world_size)
