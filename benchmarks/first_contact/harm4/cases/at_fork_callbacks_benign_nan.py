"""The script's callbacks of os.register_at_fork tell of each fork of its process; an evaluation has a harmless nan that the script masks."""
# PRELUDE
calls = []
os.register_at_fork(before=lambda: calls.append("before"), after_in_parent=lambda: calls.append("parent"), after_in_child=lambda: calls.append("child"))


class Score(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return torch.log(self.fc(x)) if not self.training else self.fc(x)


m = Score()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(4):
    m.train()
    train(m, opt, 1, s)
    m.eval()
    with torch.no_grad():
        print(s, H(torch.nan_to_num(m(batch(s)[0]), nan=0.0)), calls)
pid = os.fork()
if pid == 0:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), calls, M(m), R())
