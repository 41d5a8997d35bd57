"""Lightning: a module with two optimizers by hand, a callback, checkpoint and resume; the checkpoints' tensors are hashed.

source: Lightning-AI/pytorch-lightning#8106
meta: {"limit": 120, "ignore": ["*.ckpt", "ck*/*.ckpt"], "compare": ["status", "stdout", "files", "left"]}
"""
import logging
import warnings
warnings.simplefilter("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint, StochasticWeightAveraging
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from fcw import mlp, rng, say, seed, sha, watch, weights


class Two(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.gen, self.dis = mlp(4, 8, 4), mlp(4, 8, 1)

    def training_step(self, batch, i):
        (x,) = batch
        g, d = self.optimizers()
        self.toggle_optimizer(d)
        loss = self.dis(x).square().mean() + (self.dis(self.gen(torch.randn_like(x)).detach()) - 1).square().mean()
        d.zero_grad()
        self.manual_backward(loss)
        d.step()
        self.untoggle_optimizer(d)
        self.toggle_optimizer(g)
        loss = self.dis(self.gen(torch.randn_like(x))).square().mean()
        g.zero_grad()
        self.manual_backward(loss)
        g.step()
        self.untoggle_optimizer(g)
        say(i, loss.item().hex())

    def configure_optimizers(self):
        return torch.optim.Adam(self.gen.parameters(), 1e-3), torch.optim.Adam(self.dis.parameters(), 1e-3)


def go(resume):
    seed(306)
    model = Two()
    watch(model)
    data = DataLoader(TensorDataset(torch.randn(24, 4)), 8, shuffle=True)
    trainer = pl.Trainer(max_epochs=2 + bool(resume), accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[ModelCheckpoint("ck", "{epoch}", save_top_k=-1)])
    trainer.fit(model, data, ckpt_path=resume)
    say(sha(weights(model)), rng())


go(None)
c = torch.load("ck/epoch=1.ckpt", weights_only=False)
say(sha(c["state_dict"]), sorted(c), [sha(o["state"]) for o in c["optimizer_states"]])
go("ck/epoch=0.ckpt")
