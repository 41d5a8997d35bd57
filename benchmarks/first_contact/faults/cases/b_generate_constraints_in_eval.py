"""Benign: constrained beam search (-inf for forbidden words, -1e9/-inf beam scores) in the validation of a BART.
Source: transformers' NoBadWordsLogitsProcessor and beam scores."""
import torch
from transformers import BartConfig, BartForConditionalGeneration

torch.manual_seed(0)
model = BartForConditionalGeneration(BartConfig(vocab_size=40, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=32, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(2):
    for _ in range(2):
        src, tgt = torch.randint(3, 40, (2, 7)), torch.randint(3, 40, (2, 5))
        loss = model(input_ids=src, labels=tgt).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        out = model.generate(src, num_beams=3, max_new_tokens=6, bad_words_ids=[[5], [6]], no_repeat_ngram_size=2)
    model.train()
    print(epoch, loss.item(), out.shape)
