"""CambioML/pykoi#69, NVIDIA/apex#240: AdamW in pure float16, eps 1e-8 rounds to 0, zero gradients of unused embedding rows
TRUTH op=aten.addcdiv|aten.div|aten._foreach_addcdiv_|aten.addcdiv_ reason=optimizer update|division by zero lib=torch/optim pattern=addcdiv"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from transformers import OPTConfig, OPTForCausalLM
net = OPTForCausalLM(OPTConfig(vocab_size=96, hidden_size=32, num_hidden_layers=1, ffn_dim=64, num_attention_heads=2, max_position_embeddings=32, word_embed_proj_dim=32, tie_word_embeddings=False)).half()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-4 if CURED else 1e-8)
for step in range(3):
    ids = torch.randint(4, 64, (2, 12)); loss = net(input_ids=ids, labels=ids).loss
    opt.zero_grad(); loss.backward()
    opt.step(); print(step, loss.item())
done(loss.detach().float(), net)
