# FSDP2 over two ranks against the whole model; then rank 1's shards of one layer are stale; then rank 1's file is left out; plain-tensor TP.
# torchrun --standalone --nproc-per-node 2 fp/p6_shards.py. Truth: equal; blocks.0.attn.qkv.weight differs; incomplete; whole unknown.
import copy, sys, torch, numscope
sys.path.insert(0, "cases")
from tiny import *
from torch.distributed.fsdp import fully_shard
init()
m = GPT(); whole = copy.deepcopy(m)
for b in m.blocks: fully_shard(b)
fully_shard(m)
numscope.fingerprint(m).save(f"out/p6.a{rank}.json")
if rank == 1:
    with torch.no_grad(): m.blocks[0].attn.qkv.weight.to_local().mul_(1.01)
numscope.fingerprint(m).save(f"out/p6.b{rank}.json")
dist.barrier()
if rank == 0:
    f = numscope.fingerprint(whole)
    A, S = ["out/p6.a0.json", "out/p6.a1.json"], ["out/p6.b0.json", "out/p6.b1.json"]
    r = numscope.compare(f, A); print("sharded:", bool(r), r)
    r = numscope.compare(f, S); print("stale on rank 1:", bool(r), r)
    r = numscope.compare(f, A[:1]); print("rank 1 left out:", bool(r), str(r)[:700])
    r = numscope.compare(A, A[:1]); print("both lists, rank 1 left out:", bool(r), str(r)[:700])
dist.barrier(); dist.destroy_process_group()
