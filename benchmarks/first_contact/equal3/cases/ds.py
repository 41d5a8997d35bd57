"""DeepSpeed's engine, stages 0 to 3, on the CPU."""
import os

os.environ["DS_ACCELERATOR"] = "cpu"
from littlelm import *
import logging

how, fault, accum = arg("--how", "single"), arg("--fault"), 2
torch.manual_seed(0)
model = LM(tied="--tied" in sys.argv)
cap = float(arg("--clip", "0"))
if how == "single":
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.0)
else:
    import deepspeed

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    deepspeed.init_distributed("gloo", verbose=False)
    settings = {
        "train_micro_batch_size_per_gpu": B // WORLD // accum,
        "gradient_accumulation_steps": accum,
        "zero_optimization": {"stage": int(how), "reduce_bucket_size": 5000, "overlap_comm": False},
        "gradient_clipping": cap,
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 10**9,
    }
    if fault == "bf16-comm":
        settings["communication_data_type"] = "bf16"
    if fault == "clip-other":
        settings["gradient_clipping"] = 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1 if fault == "decay" else 0.0)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings, dist_init_required=False)
for step in range(STEPS):
    tokens, labels = batch(step)
    count = (labels != -100).sum()
    tokens, labels = tokens.chunk(WORLD)[RANK], labels.chunk(WORLD)[RANK]
    seen = 0.0
    for x, y in zip(tokens.chunk(accum), labels.chunk(accum)):
        if how == "single":
            loss = ce(model(x), y)
            seen += loss.item()
            (loss / count).backward()
            continue
        loss = ce(engine(x), y)
        seen += loss.item()
        if fault == "rank-mean":
            loss = loss / (y != -100).sum()
        elif fault == "double-div":  # the engine divides by its accumulation steps too
            loss = loss / count * WORLD
        else:
            loss = loss / count * WORLD * accum
        engine.backward(loss)
        engine.step()
    if how == "single":
        if cap:
            torch.nn.utils.clip_grad_norm_(model.parameters(), cap)
        optimizer.step()
        optimizer.zero_grad()
    report(step, total(seen, (labels != -100).sum()), model)
