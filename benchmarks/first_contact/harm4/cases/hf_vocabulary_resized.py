"""resize_token_embeddings in the middle of a training (new Parameters, tied head), sharded save_pretrained, load into another dtype, adapters of the model's own; files' bytes."""
# PRELUDE
import warnings

warnings.filterwarnings("ignore")
import transformers
from transformers import GPT2Config, GPT2LMHeadModel

transformers.logging.set_verbosity_error()
torch.manual_seed(0)
m = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=1))
W(m)


def fit(opt, first, hi):
    for s in range(first, first + 3):
        ids = torch.randint(0, hi, (2, 8), generator=torch.Generator().manual_seed(s))
        opt.zero_grad()
        loss = m(ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
    return float(loss.detach()).hex()


print(fit(torch.optim.AdamW(m.parameters(), 1e-3), 0, 50))
e = m.resize_token_embeddings(58, mean_resizing=False)
print(e is m.get_input_embeddings(), m.lm_head.weight is m.transformer.wte.weight, tuple(m.lm_head.weight.shape))
print(fit(torch.optim.AdamW(m.parameters(), 1e-3), 3, 58))
m.save_pretrained("out", max_shard_size="20KB")
n = GPT2LMHeadModel.from_pretrained("out", dtype=torch.bfloat16)
print(sorted(os.listdir("out")), n.dtype, H(dict(n.state_dict())))
m.set_input_embeddings(nn.Embedding(58, 16))
m.tie_weights()
print(fit(torch.optim.SGD(m.parameters(), 1e-2), 6, 58), m.num_parameters(), M(m), R())
