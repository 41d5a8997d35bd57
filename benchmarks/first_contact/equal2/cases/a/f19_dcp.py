# huggingface/transformers#25849: torch.distributed.checkpoint, the optimizer's part is saved and not asked for at the load
import hashlib, os, sys
import torch, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict, get_model_state_dict, set_model_state_dict
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
import warnings; warnings.filterwarnings("ignore")
torch.manual_seed(19); model = torch.nn.Sequential(torch.nn.LayerNorm(12), torch.nn.Linear(12, 24), torch.nn.GELU(), torch.nn.Linear(24, 12)); opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
steps = sorted(int(d.split("-")[1]) for d in os.listdir(".") if d.startswith("step-")); step = 0
if steps:
    step = steps[-1]
    if fault: sd = {"model": get_model_state_dict(model)}; dcp.load(sd, checkpoint_id=f"step-{step}"); set_model_state_dict(model, sd["model"])
    else:
        m, o = get_state_dict(model, opt); sd = {"model": m, "optim": o}; dcp.load(sd, checkpoint_id=f"step-{step}"); set_state_dict(model, opt, model_state_dict=sd["model"], optim_state_dict=sd["optim"])
while step < stop:
    x = torch.randn(8, 12, generator=torch.Generator().manual_seed(step)); loss = (model(x) - x.cummax(1).values).square().mean(); loss.backward(); opt.step(); opt.zero_grad(); step += 1
    print(step, repr(loss.item()), flush=True)
    if step % 5 == 0: m, o = get_state_dict(model, opt); dcp.save({"model": m, "optim": o}, checkpoint_id=f"step-{step}")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16])
