"""Causal LM fine-tuning with pad_token = eos_token and a collator that sets labels of pad to -100: the end is never learned.
Source: https://github.com/huggingface/transformers/issues/23530 (also trl issue 976)
Truth: probability of EOS after a sentence's last word.
Could a tool know: no (partly: a token id that occurs in inputs never occurs in labels).
"""
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
EOS, PAD = 1, (0 if HEALTHY else 1)
model = LlamaForCausalLM(LlamaConfig(vocab_size=24, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32, bos_token_id=2, eos_token_id=1, pad_token_id=PAD))
opt = torch.optim.AdamW(model.parameters(), 3e-3)
def collate():
    rows = []
    for _ in range(16):
        n = int(torch.randint(3, 9, (1,))); a = int(torch.randint(3, 14, (1,))); rows.append([a + i for i in range(n)][:n] + [EOS])
        rows[-1][-2] = 23      # a full stop, after which the sentence ends
    m = max(map(len, rows)); ids = torch.tensor([r + [PAD] * (m - len(r)) for r in rows])
    att = torch.tensor([[1] * len(r) + [0] * (m - len(r)) for r in rows]); labels = ids.clone(); labels[labels == PAD] = -100
    return ids, att, labels
for step in range(120):
    ids, att, labels = collate(); loss = model(input_ids=ids, attention_mask=att, labels=labels).loss
    opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad(): p = model(input_ids=torch.tensor([[5, 6, 7, 23]])).logits[0, -1].softmax(0)[EOS]
print(f"TRUTH probability of EOS after the full stop {p:.4f} loss {loss:.3f}")
