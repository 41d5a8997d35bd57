"""PYTHONWARNINGS=error from the environment, a default encoding warning on, jit and dynamo switched off: nothing that the script does not do itself may warn."""
# PRELUDE
import warnings

print(sys.warnoptions, len(warnings.filters) > 0, warnings.filters[0][0])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.out(self.fc(x).relu())


m = Net()
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)
for s in range(6):
    print(train(m, opt, 1, s), sched.get_last_lr()[0].hex())
    sched.step()
c = torch.compile(m)
print(H(c(batch(0)[0])))
with torch.no_grad():
    print(H(torch.nan_to_num(m(batch(3)[0]).log(), nan=0.0)))
try:
    warnings.warn("mine")
except UserWarning as e:
    print("raised", e)
try:
    open("x.txt", "w").write("unclosed")
except ResourceWarning as e:
    print("raised", type(e).__name__)
print(M(m), R())
