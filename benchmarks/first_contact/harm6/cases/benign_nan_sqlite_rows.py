"""A forward that inserts a row into an SQLite database for each call (feature logging), with a harmless nan in evaluation: rows and ids."""
import sqlite3
# PRELUDE
db = sqlite3.connect("calls.db", isolation_level=None)
db.execute("create table calls (id integer primary key autoincrement, mode text, mean real)")


class Logged(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x, mode="train"):
        y = self.body(x)
        c = db.execute("insert into calls (mode, mean) values (?, ?)", (mode, round(float(y.detach().mean()), 6)))
        self.last = c.lastrowid
        return torch.log(y) if mode == "eval" else y


m = Logged()
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
for k in range(4):
    print(train(m, opt, 2, 2 * k), m.last)
    m.eval()
    with torch.no_grad():
        y = m(batch(30 + k)[0], "eval")
    m.train()
    print(int(y.isnan().sum()), m.last, db.total_changes, db.execute("select count(*), max(id) from calls").fetchall())
db.execute("begin")
with torch.no_grad():
    m(batch(60)[0], "eval")
db.execute("rollback")
print(db.execute("select mode, count(*), sum(mean) from calls group by mode order by mode").fetchall(), db.execute("select id, mode from calls").fetchall())
print(db.execute("pragma integrity_check").fetchall(), M(m))
db.close()
os.remove("calls.db")
