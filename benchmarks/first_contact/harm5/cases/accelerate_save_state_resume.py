"""save_state (model, optimizer, scheduler, sampler, random states, a registered custom object), steps, load_state and skip_first_batches, register_save_state_pre_hook."""
# PRELUDE
from accelerate import Accelerator
from accelerate.utils import set_seed, ProjectConfiguration
set_seed(3)
acc = Accelerator(cpu=True, project_config=ProjectConfiguration(project_dir=".", automatic_checkpoint_naming=True, total_limit=2))
m = nn.Sequential(net(2), nn.Dropout(0.2))
W(m)
ds = torch.utils.data.TensorDataset(*batch(0, 32))
dl = torch.utils.data.DataLoader(ds, 4, shuffle=True)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
sch = torch.optim.lr_scheduler.OneCycleLR(opt, 0.05, total_steps=40)
m, opt, dl, sch = acc.prepare(m, opt, dl, sch)
class Extra:
    n = 0
    def state_dict(self): return {"n": self.n}
    def load_state_dict(self, d): self.n = d["n"]
e = Extra()
acc.register_for_checkpointing(e)
acc.register_save_state_pre_hook(lambda models, weights, out: print("hook", len(models), len(weights), os.path.basename(out)))
def go(loader):
    for x, y in loader:
        loss = F.mse_loss(m(x), y)
        acc.backward(loss)
        acc.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        sch.step()
        opt.zero_grad()
        e.n += 1
    return float(loss.detach()).hex()
print(go(dl), M(m))
acc.save_state()
print(go(dl), go(dl), M(m))
acc.save_state()
acc.load_state("checkpoints/checkpoint_0")
print(e.n, M(m))
print(go(acc.skip_first_batches(dl, 3)), M(m), R())
rs = torch.load("checkpoints/checkpoint_1/random_states_0.pkl", weights_only=False)
print(sorted(rs), H([rs[k] for k in sorted(rs)]))
acc.end_training()
