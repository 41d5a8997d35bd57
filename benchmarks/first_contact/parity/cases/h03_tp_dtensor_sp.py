from tiny import *
# torch's parallelize_module: sequence parallel norms, column- and row-parallel MLPs (the "Large Scale Transformer model training with
# Tensor Parallel" tutorial's plan; attention replicated)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, Replicate
from torch.distributed.tensor.parallel import *
init()
model = GPT()
if world > 1:
    mesh = init_device_mesh("cpu", (world,))
    R, S = (Replicate(),), (Shard(1),)
    parallelize_module(model, mesh, {
        "blocks.0": PrepareModuleInput(input_layouts=R, desired_input_layouts=S, use_local_output=True),
        "norm": PrepareModuleInput(input_layouts=S, desired_input_layouts=R, use_local_output=True)})
    for b in model.blocks:
        parallelize_module(b, mesh, {
            "norm1": SequenceParallel(), "norm2": SequenceParallel(),
            "attn": PrepareModuleInputOutput(input_layouts=S, desired_input_layouts=R, use_local_input=True,
                output_layouts=Replicate(), desired_output_layouts=Shard(1), use_local_output=True),
            "mlp": PrepareModuleInput(input_layouts=S, desired_input_layouts=R),
            "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(output_layouts=Shard(1))})
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
