# what: batches with nan inputs: the loss is nan, the script says so and goes on to the next batch without backward
# benign: yes
# PRELUDE
model = net(); W(model); opt = torch.optim.AdamW(model.parameters(), lr=.01); skipped = 0
for s in range(8):
    x, y = batch(s)
    if s in (2, 5): x[1, 3] = float("nan")
    opt.zero_grad(); l = F.mse_loss(model(x), y)
    if torch.isnan(l):
        skipped += 1; print("skip", s); continue
    l.backward(); opt.step(); print(float(l.detach()).hex())
print(skipped, M(model), H(opt.state_dict()), R())
