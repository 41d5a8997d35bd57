"""Chat demos: model.generate in a thread with TextIteratorStreamer read by the main thread, a fast tokenizer made on the spot with a chat template, text pipeline, training before and after."""
# PRELUDE
import threading
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, TextIteratorStreamer, LlamaConfig, LlamaForCausalLM, pipeline
words = "<pad> <s> </s> <unk> a b c d e f g h user : bot".split()
tk = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
tk.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tok = PreTrainedTokenizerFast(tokenizer_object=tk, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
tok.chat_template = "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {% endfor %}bot :"
m = LlamaForCausalLM(LlamaConfig(vocab_size=len(words), hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, pad_token_id=0, bos_token_id=1, eos_token_id=2))
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
def fit(n):
    m.train()
    for s in range(n):
        b = tok([" ".join(random.choices(words[4:12], k=random.randint(3, 7))) for _ in range(4)], return_tensors="pt", padding=True)
        b.pop("token_type_ids", None)
        loss = m(**b, labels=b["input_ids"].masked_fill(b["attention_mask"] == 0, -100)).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
    return float(loss.detach()).hex()
for r in range(2):
    print(fit(4))
    m.eval()
    text = tok.apply_chat_template([{"role": "user", "content": "a b c"}], tokenize=False, add_generation_prompt=True)
    ids = tok(text, return_tensors="pt")
    st = TextIteratorStreamer(tok, skip_prompt=True)
    th = threading.Thread(target=m.generate, kwargs=dict(input_ids=ids["input_ids"], attention_mask=ids["attention_mask"], streamer=st, max_new_tokens=10, do_sample=False))
    th.start()
    print(text, "->", "|".join(st))
    th.join()
pipe = pipeline("text-generation", model=m, tokenizer=tok, device="cpu")
print(pipe("a b c", max_new_tokens=5, do_sample=False, return_full_text=False))
print(M(m), R())
