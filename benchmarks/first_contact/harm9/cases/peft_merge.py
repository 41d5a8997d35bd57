"""PEFT: LoRA with DoRA, merged safely (looks for nan) and unmerged while training, adapters switched, weighted; generation with top-p (scores of -inf)."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
from transformers import GPT2Config, GPT2LMHeadModel
from peft import LoraConfig, get_peft_model, IA3Config
seed(55)
base = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=1, pad_token_id=1))
net = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], use_dora=True, lora_dropout=0.1, fan_in_fan_out=True))
net.add_adapter("two", LoraConfig(r=2, target_modules=["c_attn", "c_fc"], init_lora_weights="gaussian", fan_in_fan_out=True))
watch(net)
opt = torch.optim.AdamW([p for p in net.parameters()], 5e-3)
for step in range(9):
    net.set_adapter("default" if step % 3 < 2 else "two")
    net.train()
    ids = torch.randint(2, 40, (4, 12))
    loss = net(input_ids=ids, labels=ids).loss
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 3 == 1:
        net.merge_adapter(safe_merge=True)
        net.eval()
        g = net.generate(input_ids=ids[:1, :4], do_sample=True, top_p=0.8, top_k=10, max_new_tokens=6, bad_words_ids=[[5], [6]], no_repeat_ngram_size=2, min_new_tokens=3)
        b = net.generate(input_ids=ids[:1, :4], num_beams=3, max_new_tokens=5, output_scores=True, return_dict_in_generate=True)
        net.unmerge_adapter()
        print(dig(g), dig(b.sequences, b.scores), int(sum(s.isinf().sum() for s in b.scores)))
    print(step, dig(loss))
net.save_pretrained("adapter")
end(net, opt)
m = net.merge_and_unload()
print(dig(dict(m.state_dict())))
