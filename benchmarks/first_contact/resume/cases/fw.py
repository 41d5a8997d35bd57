# Trainer, Accelerate and Lightning on a tiny GPT-2 / MLP; goes on from its newest checkpoint
import argparse, glob, hashlib, os, sys, shutil, re
os.environ.setdefault("HF_HUB_OFFLINE", "1"); os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import torch
from torch import nn
ap = argparse.ArgumentParser(); ap.add_argument("which"); ap.add_argument("--fault", default=""); ap.add_argument("--until", type=int, default=60)
a = ap.parse_args(); F = a.fault
def h(m): return hashlib.sha256(b"".join(v.detach().contiguous().numpy().tobytes() for v in m.state_dict().values())).hexdigest()[:10]
draw = torch.Generator().manual_seed(3)
if a.which == "trainer":
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, TrainerCallback
    ids = torch.randint(0, 50, (160, 12), generator=draw)
    data = [{"input_ids": i, "labels": i.clone()} for i in ids]
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1))
    args = TrainingArguments("out", per_device_train_batch_size=8, num_train_epochs=4, save_steps=10, learning_rate=1e-2, warmup_steps=15,
        lr_scheduler_type="cosine", logging_steps=1000, report_to=[], use_cpu=True, disable_tqdm=True,
        ignore_data_skip=F == "ignore_data_skip", save_only_model=F == "save_only_model",
        gradient_accumulation_steps=2 if F == "accum" else 1)
    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **k):
            if state.global_step >= a.until: control.should_training_stop = True
    last = max(glob.glob("out/checkpoint-*"), key=lambda p: int(p.split("-")[1]), default=None)
    if last and F == "weights_only":
        model = GPT2LMHeadModel.from_pretrained(last)
    if last and F == "no_optimizer":
        for f in glob.glob(last + "/optimizer*"): os.remove(f)
        for f in glob.glob(last + "/scheduler*"): os.remove(f)
    if last and F == "no_rng":
        for f in glob.glob(last + "/rng_state*"): os.remove(f)
    if last and F == "lr_arg": args.learning_rate = 1e-3
    if last and F == "warmup_arg": args.num_train_epochs = 8
    if F == "seed_changed" and last: args.seed = 1; args.data_seed = 1
    t = Trainer(model=model, args=args, train_dataset=data, callbacks=[Stop()])
    t.train(resume_from_checkpoint=last if F != "weights_only" else None)
    print("end", t.state.global_step, "weights", h(model))
elif a.which == "accelerate":
    from accelerate import Accelerator
    from accelerate.utils import set_seed, ProjectConfiguration, DataLoaderConfiguration
    SEED = F.startswith("seed_"); F = F.replace("seed_", "")
    acc = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=SEED), project_config=ProjectConfiguration("out", automatic_checkpoint_naming=True))
    set_seed(0)
    X = torch.randn(320, 12, generator=draw)
    model = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / 20))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, X[:, :4].argmax(1)), 16, shuffle=True)
    model, opt, loader = acc.prepare(model, opt, loader)
    if F not in ("sched_not_registered",): sched = acc.prepare(sched)
    class S:
        step = 0
        def state_dict(self): return {"step": self.step}
        def load_state_dict(self, d): self.step = d["step"]
    s = S(); acc.register_for_checkpointing(s)
    first, skip = 0, 0
    if os.path.isdir("out/checkpoints"):
        ds = sorted(os.listdir("out/checkpoints"), key=lambda p: int(p.split("_")[1]))
        acc.load_state("out/checkpoints/" + ds[-1])
        acc.project_configuration.iteration = len(ds)
        first, skip = divmod(s.step, len(loader))
    step = s.step
    for epoch in range(first, 100):
        if F != "no_set_epoch": loader.set_epoch(epoch)
        use = loader
        if skip and epoch == first and F != "no_skip": use = acc.skip_first_batches(loader, skip)
        for x, y in use:
            loss = nn.functional.cross_entropy(model(x), y)
            acc.backward(loss); opt.step(); sched.step(); opt.zero_grad()
            step += 1; s.step = step
            if step % 15 == 0: acc.save_state()
            if step >= a.until: break
        if F == "skip_every_epoch" and first and step < a.until: pass
        if step >= a.until: break
    print("end", step, loss.item(), "weights", h(acc.unwrap_model(model)))
else:
    import warnings; warnings.filterwarnings("ignore")
    import logging; logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    import lightning as L
    L.seed_everything(0, verbose=False)
    X = torch.randn(320, 12, generator=draw)
    class M(L.LightningModule):
        def __init__(self):
            super().__init__(); self.net = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 4))
        def training_step(self, b, i):
            return nn.functional.cross_entropy(self.net(b[0]), b[1])
        def configure_optimizers(self):
            o = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return {"optimizer": o, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.LambdaLR(o, lambda s: min(1, (s + 1) / 30)), "interval": "step"}}
        def on_load_checkpoint(self, c):
            if F == "drop_optimizer": c["optimizer_states"] = [{**o, "state": {}} for o in c["optimizer_states"]]
            if F == "drop_sched": c["lr_schedulers"] = []
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, X[:, :4].argmax(1)), 16, shuffle=F != "seq")
    ck = L.pytorch.callbacks.ModelCheckpoint("out", save_last=True, every_n_train_steps=20, save_top_k=1)
    t = L.Trainer(max_steps=a.until, max_epochs=100, accelerator="cpu", callbacks=[ck], logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=".")
    m = M(); last = "out/last.ckpt" if os.path.exists("out/last.ckpt") else None
    if last and F == "weights_only": m.load_state_dict(torch.load(last, weights_only=False)["state_dict"]); last = None
    t.fit(m, loader, ckpt_path=last)
    print("end", t.global_step, "weights", h(m))
