"""A forward that waits for a worker thread and holds a lock (a batching queue within the model): its evaluation has a nan; the watch may look, and must go on."""
# PRELUDE
import threading, queue
seed(112)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 12), nn.Linear(12, 3)
        self.q, self.r, self.lock, self.n = queue.Queue(), queue.Queue(), threading.Lock(), 0
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            x = self.q.get()
            self.n += 1
            with torch.set_grad_enabled(x.requires_grad):
                self.r.put(x.relu())

    def forward(self, x):
        with self.lock:
            self.q.put(self.a(x))
            return self.b(self.r.get())


net = Net()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(8):
    x, y = torch.randn(8, 5), torch.randint(0, 3, (8,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        e = net(x / 0) if step == 4 else net(x)
    print(step, dig(loss, e), net.n)
end(net, opt)
