from tiny import *
import tp
# https://github.com/NovaSky-AI/SkyRL/pull/1886, NVIDIA/Megatron-LM/issues/19: the column-parallel input's gradient is not reduced (copy_to_tensor_model_parallel_region missing)
init()
model = tp.parallelize(GPT(), f=False)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():  # tensor parallel only: every rank has the whole batch
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
