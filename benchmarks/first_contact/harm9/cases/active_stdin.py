"""Active learning at the terminal: labels are read by input() and from sys.stdin while the model scores candidates, some of which are nan (entropy of 0*log 0)."""
# PRELUDE
seed(101)
net = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 2))
watch(net)
opt = torch.optim.Adam(net.parameters(), 2e-2)
pool, X, Y = torch.randn(30, 3), [], []
pool[4] = math.inf
while True:
    with torch.no_grad():
        p = net(pool).double().mul(200).softmax(1)
        ent = -(p * p.log()).sum(1)
        ent[ent.isnan()] = -1
        i = int(ent.argmax())
    try:
        a = input(f"label of {i} ({dig(ent)})? ")
    except EOFError:
        print("end of labels")
        break
    if a == "more":
        a = sys.stdin.readline().strip()
        print("line", a)
    X.append(pool[i].nan_to_num(posinf=3)); Y.append(int(a))
    pool = torch.cat([pool[:i], pool[i + 1:]])
    for _ in range(3):
        loss = F.cross_entropy(net(torch.stack(X)), torch.tensor(Y))
        opt.zero_grad(); loss.backward(); opt.step()
    print(dig(loss))
end(net, opt)
