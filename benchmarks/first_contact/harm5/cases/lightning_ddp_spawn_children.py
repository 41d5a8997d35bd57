"""Lightning with ddp_spawn: two children made by torch.multiprocessing, the module pickled to them and its weights and results brought back to the parent, which trains on by hand."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
import lightning as L
class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.m = net(3)
    def training_step(self, b, i):
        loss = F.mse_loss(self.m(b[0]), b[1])
        self.log("loss", loss, sync_dist=True, on_epoch=True, on_step=False)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)
if __name__ == "__main__":
    L.seed_everything(4)
    m = Lit()
    W(m)
    x, y = batch(0, 20)
    t = L.Trainer(max_epochs=2, accelerator="cpu", devices=2, strategy="ddp_spawn", logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=".", enable_checkpointing=False)
    t.fit(m, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 2, shuffle=True))
    print(M(m), {k: float(v).hex() for k, v in t.callback_metrics.items()}, t.world_size)
    opt = torch.optim.SGD(m.m.parameters(), 0.05)
    print(train(m.m, opt, 3), M(m), R())
