"""A transformers Trainer over an iterable dataset with max_steps, callbacks that log every event in order and stop, evaluate and save at will, compute_loss_func, own optimizer by create_optimizer, label smoothing, best model reloaded; events, logs, files, states."""
# PRELUDE
import warnings
warnings.simplefilter("ignore")
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as hf_logging

hf_logging.set_verbosity_error()


class Stream(IterableDataset):
    def __iter__(self):
        for s in range(1000):
            x, y = batch(s, 1)
            yield {"x": x[0], "labels": y[0]}


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        x, y = batch(900 + i, 1)
        return {"x": x[0], "labels": y[0]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net(4)

    def forward(self, x, labels=None):
        out = self.body(x)
        return {"logits": out} if labels is None else {"loss": F.mse_loss(out, labels), "logits": out}


events = []


class All(TrainerCallback):
    pass


def record(name):
    def f(self, args, state, control, **kw):
        events.append((name, state.global_step))
        if name == "on_step_end" and state.global_step in (3, 7):
            control.should_evaluate = True
        if name == "on_step_end" and state.global_step == 5:
            control.should_save = True
        if name == "on_evaluate" and state.global_step == 7:
            control.should_training_stop = True
        return control

    return f


for n in ("on_init_end", "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_step_begin", "on_substep_end", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end", "on_evaluate", "on_save", "on_log", "on_prediction_step"):
    setattr(All, n, record(n))


class Mine(Trainer):
    def create_optimizer(self, *a, **k):
        self.optimizer = torch.optim.RAdam([{"params": [p], "lr": 1e-2 / (1 + i)} for i, p in enumerate(self.model.parameters())])
        return self.optimizer


set_seed(5)
m = Net()
W(m)
args = TrainingArguments("out", max_steps=12, per_device_train_batch_size=2, gradient_accumulation_steps=2, logging_steps=2, save_strategy="no", eval_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, learning_rate=1e-2, lr_scheduler_type="cosine", max_grad_norm=0.5, dataloader_drop_last=True, seed=5)
t = Mine(m, args, train_dataset=Stream(), eval_dataset=Rows(), callbacks=[All()], compute_loss_func=lambda out, labels, num_items_in_batch=None: F.huber_loss(out["logits"], labels))
t.remove_callback(PrinterCallback)
r = t.train()
print(r.global_step, float(r.training_loss).hex(), M(m), len(events), H(events))
print(events[:14])
print([(k, {a: b for a, b in l.items() if not any(w in a for w in ("runtime", "per_second"))}) for k, l in enumerate(t.state.log_history)])
print(sorted(os.listdir("out/checkpoint-5")) if os.path.isdir("out/checkpoint-5") else None, H({k: v for k, v in t.optimizer.state_dict()["state"].items()}), R())
p = t.predict(Rows())
print(H(p.predictions), {k: v for k, v in p.metrics.items() if k.endswith("loss")})
import shutil
shutil.rmtree("out")
