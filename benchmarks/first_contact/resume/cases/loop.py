# A plain training loop (timm / torchvision references / the_well in style): AdamW in groups, warm-up + cosine,
# GradScaler, EMA, dropout, batch norm, shuffled loader, saves each 10 steps, goes on from last.pt.
import argparse, copy, glob, hashlib, os, random, sys
import numpy as np
import torch
from torch import nn
ap = argparse.ArgumentParser()
ap.add_argument("--fault", default="")
ap.add_argument("--until", type=int, default=40)
ap.add_argument("--sgd", action="store_true")
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--accum", type=int, default=1)
ap.add_argument("--lr", type=float, default=3e-3)
ap.add_argument("--scratch", action="store_true")
ap.add_argument("--eval", action="store_true")
ap.add_argument("--init-from", default="")
ap.add_argument("--every", type=int, default=10)
a = ap.parse_args()
F = a.fault
random.seed(a.seed); np.random.seed(a.seed); torch.manual_seed(a.seed)


class Net(nn.Module):
    def __init__(self, p=0.1):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(p),
                                      nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU())
        self.head = nn.Linear(32, 8)
        if "queue" in F:
            self.register_buffer("queue", nn.functional.normalize(torch.randn(8, 64), dim=0), persistent=False)
            self.ptr = 0

    def forward(self, x):
        return self.head(self.backbone(x))


path = "last.pt"
if F == "best_for_last" and os.path.exists("best.pt"):
    path = "best.pt"
if F == "stale_sorted" and glob.glob("ckpt-*.pt"):
    path = sorted(glob.glob("ckpt-*.pt"))[-1]                 # "ckpt-5.pt" > "ckpt-20.pt"
resume = os.path.exists(path) and not a.scratch
model = Net(0.3 if F == "dropout_changed" and resume else 0.1)
if F == "unfrozen" and not resume:
    model.backbone[4].requires_grad_(False)                   # freezing happens in the first run's set-up alone
if F == "frozen" and resume:
    model.backbone[4].requires_grad_(False)
ema = copy.deepcopy(model).requires_grad_(False) if F != "no_ema" else None
if F == "swa_count":
    ema = torch.optim.swa_utils.AveragedModel(model)


def make_opt():
    ps = [p for p in model.parameters()]
    if F == "set_order" and resume:                           # optimizer over a set(): another order of same shapes
        i, j = 4, 6
        ps[i], ps[j] = ps[j], ps[i]
        ps[i + 1], ps[j + 1] = ps[j + 1], ps[i + 1]
    if F == "group_order":
        d, n = [p for p in ps if p.dim() > 1], [p for p in ps if p.dim() < 2]
        one, two = [d[1]], [d[2]]
        g = [{"params": one, "weight_decay": 0.3}, {"params": two, "weight_decay": 0.0}]
        if resume: g.reverse()
        return torch.optim.AdamW(g + [{"params": [d[0], d[3]] + n}], lr=a.lr)
    if a.sgd:
        return torch.optim.SGD(ps, lr=0.05, momentum=0.9, nesterov=True)
    if F == "betas_changed" and resume:
        return torch.optim.AdamW(ps, lr=a.lr, weight_decay=0.1, betas=(0.9, 0.95))
    return torch.optim.AdamW(ps, lr=a.lr, weight_decay=0.1)


def lr_at(s):
    return (s + 1) / 15 if s < 15 else 0.5 * (1 + np.cos(np.pi * (s - 15) / 185))


opt = make_opt()
sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_at)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=7)
draw = torch.Generator().manual_seed(5)
X = torch.randn(480, 16, generator=draw); Y = X @ torch.randn(16, 8, generator=draw)
Y = Y.argmax(1)
shuffle = torch.Generator().manual_seed(100 + a.seed)
B = 16
data = torch.utils.data.TensorDataset(X, Y)
step, skip, epoch, best = 0, 0, 0, 9e9
extra = {}
if a.init_from:                                               # fine-tuning on purpose: weights alone
    model.load_state_dict(torch.load(a.init_from, weights_only=False)["model"])
    model.head.reset_parameters()
if resume:
    c = torch.load(path, weights_only=False)
    if F == "prefix_partly":
        sd = {k.replace("backbone.", "encoder.") if k.startswith("backbone.4") or k.startswith("backbone.6") else k: v for k, v in c["model"].items()}
        model.load_state_dict(sd, strict=False)
    elif F == "prefix_none":
        print(len(model.load_state_dict({"module." + k: v for k, v in c["model"].items()}, strict=False).missing_keys) > 0)
    elif F == "head_left":                                    # timm: load_pretrained drops the classifier
        model.load_state_dict({k: v for k, v in c["model"].items() if "head" not in k}, strict=False)
    elif F == "bn_lost":
        model.load_state_dict({k: v for k, v in c["model"].items() if "running" not in k and "num_b" not in k}, strict=False)
    elif F == "model_from_ema":
        model.load_state_dict(c["ema"])
    else:
        model.load_state_dict(c["model"])
    if ema is not None:
        if F == "ema_is_model":
            ema.load_state_dict(model.state_dict())
        elif F in ("ema_init",):
            pass
        elif F == "swa_count":
            ema.load_state_dict(c["ema"]); ema.n_averaged.zero_()
        elif F == "model_from_ema":
            ema.load_state_dict(c["ema"])
        else:
            ema.load_state_dict(c["ema"])
    o = c["opt"]
    if F == "model_best_opt_last" and os.path.exists("best.pt"):   # two files that are not of one step
        model.load_state_dict(torch.load("best.pt", weights_only=False)["model"])
    if F == "opt_old_file": o = torch.load("best.pt", weights_only=False)["opt"]
    if F == "bias_state_lost":
        o["state"] = {i: s for i, s in o["state"].items() if i % 2 == 0}
    if F == "exp_avg_zero":
        for i, s in o["state"].items():
            if i in (4, 6): s["exp_avg"].zero_()
    if F == "expsq_bf16":
        for s in o["state"].values():
            s["exp_avg_sq"] = s["exp_avg_sq"].bfloat16().float()
    if F == "step_reset":
        for s in o["state"].values(): s["step"].zero_()
    if F not in ("opt_not_loaded", "sgd_not_loaded"):
        opt.load_state_dict(o)
    if F == "opt_before_move":                                # a new model object after the optimizer was made
        model = copy.deepcopy(model); 
        opt = make_opt(); sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_at)
    if F != "sched_not_loaded":
        if F == "sched_new_overwrites_lr":                    # yolov5 #292
            sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_at); sched.last_epoch = c["step"]
            for g in opt.param_groups: g["lr"] = a.lr
        else:
            sched.load_state_dict(c["sched"])
    else:
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_at)
    if F == "sched_twice": sched.step()
    if F == "wd_changed":
        for g in opt.param_groups: g["weight_decay"] = 0.01
    if F == "betas_changed":
        for g in opt.param_groups: g["betas"] = (0.9, 0.95)
    if F == "lr_changed_on_purpose":
        sched.base_lrs = [1e-3]
        for g in opt.param_groups: g["lr"] = 1e-3 * lr_at(c["step"]); g["initial_lr"] = 1e-3
    if F != "scaler_not_loaded":
        scaler.load_state_dict(c["scaler"])
    step, epoch, skip = c["step"], c["epoch"], c["in_epoch"]
    shuffle.set_state(c["shuffle"])
    if F == "loader_anew": skip = 0; shuffle = torch.Generator().manual_seed(100 + a.seed); epoch = 0
    if F == "epoch_begins_again": skip = 0
    if F == "skip_off_by_one": skip -= 1
    if F == "skip_double": skip *= 2
    if F == "skip_one_more": skip += 1
    if F == "mean_shuffle_other": shuffle.manual_seed(7)
    torch.set_rng_state(c["rng"]); np.random.set_state(c["nprng"]); random.setstate(c["pyrng"])
    if F == "rng_not_restored": torch.manual_seed(a.seed)
    if F == "rng_reseeded_epoch": torch.manual_seed(1234)
    if F == "py_rng_not_restored": random.seed(a.seed)
    if F == "np_rng_not_restored": np.random.seed(a.seed)
    if "queue" in F:
        if F == "queue_ok": model.queue.copy_(c["queue"])
        model.ptr = c["ptr"]
    if F == "accum_changed": a.accum = 2
    print("resumed at", step)
if F == "weights_bf16" :
    pass
if a.eval:
    model.eval()
    with torch.no_grad():
        print("eval", nn.functional.cross_entropy(model(X), Y).item())
    sys.exit()


def save(name):
    w = model.state_dict()
    if F == "weights_bf16":
        w = {k: v.bfloat16() if v.is_floating_point() else v for k, v in w.items()}
    c = {"model": w, "ema": ema.state_dict() if ema is not None else None, "opt": opt.state_dict(), "sched": sched.state_dict(),
         "scaler": scaler.state_dict(), "step": step, "epoch": epoch, "in_epoch": n + 1, "shuffle": begin, "rng": torch.get_rng_state(),
         "nprng": np.random.get_state(), "pyrng": random.getstate()}
    if "queue" in F: c["queue"] = model.queue; c["ptr"] = model.ptr
    torch.save(c, name)


if F == "clip_off": pass
micro = 0
while step < a.until:
    begin = shuffle.get_state()
    loader = torch.utils.data.DataLoader(data, B, shuffle=True, generator=shuffle)
    for n, (x, y) in enumerate(loader):
        if n < skip: continue
        if F in ("py_rng_not_restored", "py_ok") and random.random() < 0.5: x = x.flip(1)
        if F in ("np_rng_not_restored", "np_ok"): x = x + 0.05 * torch.from_numpy(np.random.randn(*x.shape)).float()
        model.train()
        h = model.backbone(x) if "queue" in F else None
        out = model.head(h) if h is not None else model(x)
        smooth = 0.1 if F == "smoothing_changed" and resume else 0.0
        loss = nn.functional.cross_entropy(out, y, label_smoothing=smooth)
        if h is not None:
            q = nn.functional.normalize(out, dim=1)
            loss = loss + torch.logsumexp(q @ model.queue.clone(), 1).mean() * 0.1
        scaler.scale(loss / a.accum).backward()
        micro += 1
        if h is not None:
            with torch.no_grad():
                model.queue[:, model.ptr:model.ptr + 16] = q.T; model.ptr = (model.ptr + 16) % 64
        if F == "accum_middle" and micro == 21 and not resume:
            save("last.pt")                                   # a save on a signal: between micro-batches
        if micro % a.accum: continue
        scaler.unscale_(opt)
        if not (F == "clip_off" and resume): nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(opt); scaler.update(); opt.zero_grad(); sched.step()
        step += 1
        if F == "swa_count": ema.update_parameters(model)
        elif ema is not None:
            with torch.no_grad():
                for e, p in zip(ema.state_dict().values(), model.state_dict().values()):
                    e.mul_(0.9).add_(p, alpha=0.1) if e.is_floating_point() else e.copy_(p)
        if os.environ.get("SHOW"): print(step, loss.item())
        if F == "stale_sorted" and step == 5: save("ckpt-5.pt")
        if step % a.every == 0 and F != "accum_middle":
            save("last.pt")
            if F == "stale_sorted": save(f"ckpt-{step}.pt")
            if F in ("best_for_last", "model_best_opt_last", "opt_old_file") and step == 10: save("best.pt")
        if step >= a.until: break
    skip = 0; epoch += 1


def h(sd): return hashlib.sha256(b"".join(v.detach().contiguous().numpy().tobytes() for v in sd.values())).hexdigest()[:10]
print("end", step, "loss", loss.item(), "weights", h(model.state_dict()), "ema", h(ema.state_dict()) if ema is not None else None)
