"""BackboneFinetuning (unfreezes and adds a param group), ModelPruning with the lottery ticket, early stopping, CSVLogger, combined loaders, own clipping and optimizer_step."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
import lightning as L
from lightning.pytorch.callbacks import BackboneFinetuning, ModelPruning, EarlyStopping, ModelCheckpoint, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import CombinedLoader
class D(torch.utils.data.Dataset):
    def __init__(self, k): self.k = k
    def __len__(self): return 16
    def __getitem__(self, i):
        x, y = batch(i + self.k, 1)
        return x[0], y[0]
class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 4)
    def forward(self, x):
        return self.head(self.backbone(x))
    def training_step(self, b, i):
        loss = F.mse_loss(self(b["a"][0]), b["a"][1]) + 0.5 * F.mse_loss(self(b["b"][0]), b["b"][1])
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss
    def validation_step(self, b, i):
        self.log("val", F.mse_loss(self(b[0]), b[1]))
    def configure_gradient_clipping(self, o, gradient_clip_val=None, gradient_clip_algorithm=None):
        nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val * (1 + self.current_epoch))
    def optimizer_step(self, epoch, i, o, closure):
        if self.trainer.global_step < 3:
            for g in o.param_groups:
                g["lr"] = 0.01 * (self.trainer.global_step + 1) / 3
        o.step(closure=closure)
    def configure_optimizers(self):
        o = torch.optim.SGD(filter(lambda p: p.requires_grad, self.parameters()), 0.01, momentum=0.9)
        return [o], [torch.optim.lr_scheduler.ExponentialLR(o, 0.9)]
L.seed_everything(4)
m = Lit()
W(m)
dl = lambda k, s: torch.utils.data.DataLoader(D(k), 4, shuffle=s, drop_last=True)
t = L.Trainer(max_epochs=4, accelerator="cpu", logger=CSVLogger("logs", name="x", version=0), enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1, gradient_clip_val=0.5, accumulate_grad_batches=2,
              callbacks=[BackboneFinetuning(unfreeze_backbone_at_epoch=2, lambda_func=lambda e: 1.5), ModelPruning("l1_unstructured", parameters_to_prune=[(m.head, "weight")], amount=lambda e: 0.2 if e < 2 else 0, use_lottery_ticket_hypothesis=True, make_pruning_permanent=True), EarlyStopping("val", patience=3), LearningRateMonitor(), ModelCheckpoint("ck", monitor="val", save_top_k=2, save_last=True)])
t.fit(m, CombinedLoader({"a": dl(0, True), "b": dl(100, True)}, "max_size_cycle"), dl(200, False))
print(M(m), sorted(m.state_dict()), t.global_step, [len(g["params"]) for g in t.optimizers[0].param_groups])
print(sorted(os.listdir("ck")), float(t.checkpoint_callback.best_model_score).hex(), R())
