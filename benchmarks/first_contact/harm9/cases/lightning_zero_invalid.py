"""Lightning: on_after_backward looks for invalid gradients and zeroes them (a much copied recipe); the loss is finite, a gradient is nan now and then."""
# PRELUDE
import warnings, logging
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning as L
seed(115)


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
        self.seen, self.bad = [], 0

    def training_step(self, b, i):
        o = self.net(b[0])
        loss = (o - o.detach() * (1.0 if i % 4 == 2 else 0.0)).pow(2).sum(1).sqrt().mean()
        self.seen.append(loss.detach())
        return loss

    def on_after_backward(self):
        if not all(p.grad is None or p.grad.isfinite().all() for p in self.parameters()):
            self.bad += 1
            self.zero_grad()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-2)


lit = Lit()
watch(lit)
dl = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), 8, shuffle=True)
tr = L.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", gradient_clip_val=0.5)
tr.fit(lit, dl)
print(lit.bad, dig(lit.seen))
end(lit)
