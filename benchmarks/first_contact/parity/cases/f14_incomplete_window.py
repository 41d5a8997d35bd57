from tiny import *
# https://github.com/NVIDIA-NeMo/Automodel/pull/2257: an epoch of 20 samples; 8 each step, the last 4 make a smaller step in A; with
# micro-batches of 4 and accum 2 the last one never gets a step, and the next epoch's zero_grad wipes it
data = list(batches(1, 20))[0]
model = GPT()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    if not B:
        for a, b in zip(data[0].split(8), data[1].split(8)):
            opt.zero_grad(); ce(model(a), b).backward(); opt.step()
    else:
        opt.zero_grad()
        for i, (a, b) in enumerate(zip(data[0].split(4), data[1].split(4))):
            (ce(model(a), b) / 2).backward()
            if (i + 1) % 2 == 0:
                opt.step(); opt.zero_grad()
