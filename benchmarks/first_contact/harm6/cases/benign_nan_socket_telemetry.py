"""A forward that sends a telemetry datagram and a line over TCP for each call; a harmless nan in evaluation. What arrives, and in which order."""
import socket, threading
# PRELUDE
server = socket.create_server(("127.0.0.1", 0))
got, udp_got = [], []
udp_in = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp_in.bind(("127.0.0.1", 0))


def serve():
    c, _ = server.accept()
    with c, c.makefile("rw") as f:
        for line in f:
            got.append(line.strip())
            f.write(f"ack {len(got)}\n")
            f.flush()


t = threading.Thread(target=serve)
t.start()
tcp = socket.create_connection(server.getsockname())
pipe = tcp.makefile("rw")
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.connect(udp_in.getsockname())


class Told(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()
        self.n = 0
        self.acks = []

    def forward(self, x, kind="train"):
        self.n += 1
        udp.send(f"{kind} {self.n}".encode())
        pipe.write(f"{kind} {self.n}\n")
        pipe.flush()
        self.acks.append(pipe.readline().strip())
        y = self.body(x)
        return y.log() if kind == "eval" else y


m = Told()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for k in range(3):
    print(train(m, opt, 2, 2 * k))
    with torch.no_grad():
        print(int(m(batch(40 + k)[0], "eval").isnan().sum()), m.acks[-1])
pipe.close()
tcp.close()
t.join()
udp_in.settimeout(0.3)
try:
    while True:
        udp_got.append(udp_in.recv(100).decode())
except TimeoutError:
    pass
print(got, udp_got, m.acks, M(m))
