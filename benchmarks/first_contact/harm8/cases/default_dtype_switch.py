# what: default dtype and default device switched during training, bfloat16 and float16 copies of the model, a half overflow in an evaluation only
# benign: yes
# PRELUDE
import copy
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
for s in range(4):
    torch.set_default_dtype([torch.float64, torch.bfloat16, torch.float32, torch.float16][s]); torch.set_default_device("cpu")
    x, y = batch(0)[0].float(), batch(0)[1].float(); opt.zero_grad(); l = F.mse_loss(model(x), y); l.backward(); opt.step(); print(float(l.detach()).hex(), torch.ones(1).dtype, torch.get_default_dtype())
    with torch.no_grad(): h = copy.deepcopy(model).half(); print(h(x.half() * 6e4).isfinite().all().item(), H(copy.deepcopy(model).bfloat16()(x.bfloat16())), (torch.tensor(7e4).half() - torch.tensor(7e4).half()).isnan().item())
    torch.set_default_dtype(torch.float32); torch.set_default_device(None)
b = copy.deepcopy(model).bfloat16(); o = torch.optim.AdamW(b.parameters(), lr=.01)
for s in range(3): x, y = batch(s); o.zero_grad(); l = F.mse_loss(b(x.bfloat16()).float(), y); l.backward(); o.step(); print(float(l.detach()).hex())
print(M(model), M(b), R())
