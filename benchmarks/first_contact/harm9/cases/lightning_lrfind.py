"""Lightning: Tuner.lr_find over rates that diverge, EarlyStopping(check_finite), a metric of nan that is logged, manual optimization with accumulation."""
# PRELUDE
import warnings, logging
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning as L
from lightning.pytorch.tuner import Tuner
from lightning.pytorch.callbacks import EarlyStopping, StochasticWeightAveraging, GradientAccumulationScheduler
seed(53)


class Lit(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
        self.seen = []

    def training_step(self, b, i):
        loss = F.mse_loss(self.net(b[0]), b[1])
        self.seen.append(loss.detach())
        self.log("train", loss)
        return loss

    def validation_step(self, b, i):
        p = self.net(b[0])
        self.log("val", F.mse_loss(p, b[1]))
        self.log("pos", (p - b[1]).abs()[b[1] > 100].mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), self.hparams.lr, momentum=0.9)


data = torch.utils.data.TensorDataset(x := torch.randn(64, 8), x.sum(1, keepdim=True))
dl = lambda s: torch.utils.data.DataLoader(data, 16, shuffle=s)
lit = Lit()
watch(lit)
kw = dict(max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
tr = L.Trainer(**kw)
f = Tuner(tr).lr_find(lit, dl(True), dl(False), min_lr=1e-5, max_lr=50, num_training=30, update_attr=True)
print(len(f.results["loss"]), dig(f.results["loss"]), repr(f.suggestion()), lit.hparams.lr)
lit.hparams.lr = 1e-2
tr = L.Trainer(callbacks=[EarlyStopping("val", patience=2), StochasticWeightAveraging(1e-3, 1), GradientAccumulationScheduler({1: 2})], gradient_clip_val=1.0, **kw)
tr.fit(lit, dl(True), dl(False))
print(tr.current_epoch, {k: dig(v) for k, v in tr.callback_metrics.items()}, dig(lit.seen), sorted(os.listdir(".")))
end(lit)
