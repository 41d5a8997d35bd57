"""@record: rank 1 raises after some steps, rank 0 finishes its work by itself; torchrun's status and the error file; a finally that writes."""
# PRELUDE
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    rank = int(os.environ["RANK"])
    seed(80 + rank)
    net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1))
    watch(net)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    with open(f"rank{rank}.txt", "w") as out:
        try:
            for step in range(8):
                loss = net(torch.randn(8, 5)).pow(2).mean()
                opt.zero_grad(); loss.backward(); opt.step()
                out.write(dig(loss) + "\n")
                with torch.no_grad():
                    net(torch.full((1, 5), math.inf))
                if rank == 1 and step == 5:
                    while not os.path.exists("zero_is_done"):
                        pass
                    raise ValueError("bad shard")
        finally:
            out.write(f"{dig(dict(net.state_dict()))} {rngs()}\n")
    if rank == 0:
        open("zero_is_done", "w").close()


main()
