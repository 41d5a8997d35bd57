"""Lightning: manual optimization of a GAN with two optimizers, toggled, accumulation and clipping by hand; then the same by Fabric with its own wrappers (forward redirection, no_backward_sync)."""
# PRELUDE
import warnings

warnings.simplefilter("ignore")
import lightning as L
from lightning.fabric import Fabric

L.seed_everything(4, verbose=False)


class Gan(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.g, self.d = net(1, 3, 16, 8), net(2, 8, 16, 1)
        self.seen = []

    def training_step(self, b, i):
        og, od = self.optimizers()
        self.toggle_optimizer(og)
        l = -self.d(self.g(torch.randn(len(b), 3))).mean()
        og.zero_grad()
        self.manual_backward(l)
        self.clip_gradients(og, 1.0, "norm")
        og.step()
        self.untoggle_optimizer(og)
        self.toggle_optimizer(od)
        l2 = F.softplus(self.d(self.g(torch.randn(len(b), 3)).detach())).mean() + F.softplus(-self.d(b)).mean()
        self.manual_backward(l2 / 2)
        if i % 2:
            od.step()
            od.zero_grad()
        self.untoggle_optimizer(od)
        self.seen.append((l.item().hex(), l2.item().hex()))

    def configure_optimizers(self):
        return torch.optim.Adam(self.g.parameters(), 1e-3), torch.optim.Adam(self.d.parameters(), 1e-3)


data = [batch(s)[0] for s in range(6)]
m = Gan()
t = L.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
import contextlib, io

with contextlib.redirect_stdout(io.StringIO()):
    t.fit(m, torch.utils.data.DataLoader(data, batch_size=None))
print(m.seen, t.global_step, M(m))
f = Fabric(accelerator="cpu", devices=1)
n = net(5)
n, o = f.setup(n, torch.optim.SGD(n.parameters(), 0.05))
for s in range(6):
    x, y = batch(s)
    with f.no_backward_sync(n, enabled=s % 3 != 2):
        f.backward(F.mse_loss(n(x), y))
    if s % 3 == 2:
        f.clip_gradients(n, o, max_norm=0.5)
        o.step()
        o.zero_grad()
f.save("f.ckpt", {"n": n, "o": o})
print(H(dict(n.state_dict())), R())
