"""nvidia-cosmos/cosmos-rl#155, pytorch/pytorch#116349: cross entropy where every label is -100; transformers GPT-2
TRUTH op=aten.nll_loss_forward|aten.nll_loss_nd|aten.cross_entropy_loss|aten.div reason=division by zero lib=transformers/loss/loss_utils.py pattern=cross_entropy"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from transformers import GPT2Config, GPT2LMHeadModel
net = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2))
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(4):
    opt.zero_grad()
    for micro in range(2):
        ids = torch.randint(0, 64, (2, 16)); labels = ids.clone(); labels[:, :8] = -100
        if (step, micro) == (2, 1) and not CURED: labels[:] = -100      # both prompts were truncated before the answer
        loss = net(input_ids=ids, labels=labels).loss / 2; loss.backward()
    opt.step(); print(step, loss.item())
done(loss.detach(), net)
