# what: schedule-free AdamW: optimizer.train()/eval() swap weights in place between training and evaluation
# PRELUDE
import schedulefree
model = net(); W(model); opt = schedulefree.AdamWScheduleFree(model.parameters(), lr=.01, warmup_steps=3, foreach=False)
for e in range(3):
    model.train(); opt.train(); print(train(model, opt, 3, 3 * e)); model.eval(); opt.eval()
    with torch.no_grad(): print(H(model(batch(44)[0]), dict(model.state_dict())))
opt2 = schedulefree.SGDScheduleFreeClosure(model.parameters(), lr=.05); model.train()
def clo():
    x, y = batch(5); opt2.zero_grad(); l = F.mse_loss(model(x), y); l.backward(); return l
for _ in range(3): print(float(opt2.step(clo).detach()).hex())
print(M(model), H(opt.state_dict()["state"]), R())
