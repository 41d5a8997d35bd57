"""Lightning: weight averaging callback, gradient accumulation scheduler, clipping, LR monitor, early stopping and a callback of the script's own that writes down the order of hooks; CSV logs."""
# PRELUDE
import logging, warnings

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("lightning").setLevel(logging.ERROR)
import lightning as L
from lightning.pytorch.callbacks import Callback, GradientAccumulationScheduler, LearningRateMonitor, StochasticWeightAveraging
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

order = []


class Order(Callback):
    def on_before_optimizer_step(self, trainer, pl, opt):
        order.append(("step", trainer.global_step, H([p.grad for p in pl.parameters()])))

    def on_before_zero_grad(self, trainer, pl, opt):
        order.append("zero")

    def on_train_epoch_end(self, trainer, pl):
        order.append(("epoch", trainer.current_epoch, float(trainer.callback_metrics["loss"]).hex()))


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net(2)
        self.norm = nn.BatchNorm1d(4)

    def training_step(self, b, i):
        loss = F.mse_loss(self.norm(self.net(b[0])), b[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, b, i):
        self.log("val", F.mse_loss(self.norm(self.net(b[0])), b[1]))

    def configure_optimizers(self):
        o = torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)
        return [o], [torch.optim.lr_scheduler.StepLR(o, 2)]


data = TensorDataset(torch.cat([batch(i)[0] for i in range(8)]), torch.cat([batch(i)[1] for i in range(8)]))
m = Lit()
W(m)
t = L.Trainer(max_epochs=4, accelerator="cpu", logger=CSVLogger(".", name="csv", version=0), enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
              gradient_clip_val=0.5, log_every_n_steps=2, callbacks=[Order(), StochasticWeightAveraging(1e-2, swa_epoch_start=2), GradientAccumulationScheduler({0: 1, 1: 2}), LearningRateMonitor("epoch")])
t.fit(m, DataLoader(data, 8), DataLoader(data, 16))
print(len(order), H(order), order[-1], M(m))
print(open("csv/version_0/metrics.csv").read().count("\n"), R())
