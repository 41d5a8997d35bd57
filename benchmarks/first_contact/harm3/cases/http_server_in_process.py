"""A prediction server (http.server in a thread) serves the model between steps of its training; the client in the main thread asks it by urllib; ports and sockets are the script's alone."""
# PRELUDE
import http.server
import json
import threading
import urllib.request

m = net(1)
W(m)
lock = threading.Lock()


class Hd(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        x = torch.tensor(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        with lock, torch.no_grad():
            body = json.dumps(m(x).tolist()).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *a):
        pass


srv = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hd)
th = threading.Thread(target=srv.serve_forever, daemon=True)
th.start()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(4):
    x, t = batch(s)
    with lock:
        opt.zero_grad()
        F.mse_loss(m(x), t).backward()
        opt.step()
    r = opener.open(f"http://127.0.0.1:{srv.server_port}/", json.dumps(x[:2].tolist()).encode(), timeout=20).read()
    print(s, H(r))
srv.shutdown()
srv.server_close()
th.join()
listening = sum(l.split()[3] == "0A" and os.path.exists(f"/proc/self/net/tcp") for l in open("/proc/self/net/tcp").read().splitlines()[1:] if any(os.path.islink(f"/proc/self/fd/{f}") and os.path.exists(f"/proc/self/fd/{f}") and os.readlink(f"/proc/self/fd/{f}") == f"socket:[{l.split()[9]}]" for f in os.listdir("/proc/self/fd")))
print(listening, M(m))
