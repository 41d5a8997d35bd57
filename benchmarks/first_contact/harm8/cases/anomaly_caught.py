# what: detect_anomaly finds a nan in backward, the script catches the error, drops the batch and goes on
# benign: yes
# cmp: status stdout files left
# PRELUDE
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
for s in range(6):
    x, y = batch(s); opt.zero_grad()
    try:
        with torch.autograd.detect_anomaly(check_nan=True):
            o = model(x); l = F.mse_loss(o, y) + ((o - o.detach()).pow(2).sum(1).sqrt().sum() * .1 if s % 3 == 1 else 0); l.backward()
    except RuntimeError as e: print("caught", str(e)[:70]); opt.zero_grad(); continue
    opt.step(); print(float(l.detach()).hex())
print(M(model), R())
