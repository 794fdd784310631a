"""Small random models, a tokenizer for them, and the plain forward pass that everything is compared with."""

import string

import numpy as np
import reference_ops
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from scrl.sampling.gpu.graph_engine import GraphEngine
from scrl.sampling.local import LocalSampler
from scrl.sampling.sampler import Prompt

WORDS = ("<pad>", "<end>", *string.ascii_lowercase, *"0123456789", " ", ".", "=", "the", "ab", "cd", "\n\n", "E.", "xy")
END = 1
SHAPE = {
    "vocab_size": len(WORDS) + 3,  # padded, as many published vocabularies are: three tokens have no text
    "initializer_range": 0.2,  # far from uniform, so that a wrong position or mask shows
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": END,
}  # fmt: skip
GPT2_SHAPE = {
    "vocab_size": SHAPE["vocab_size"], "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128,
    "initializer_range": 0.2, "bos_token_id": None, "eos_token_id": END, "pad_token_id": 0,
}  # fmt: skip
GROUPED = ("llama", "llama-mqa", "llama-biased", "qwen2", "qwen3")
OTHERS = ("gpt2", "gpt-neox")


def tiny_model(name, seed=0):
    """A model by name; every weight is random, the biases and norms too."""
    torch.manual_seed(seed)
    if name == "llama":
        model = LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=2))
    elif name == "llama-mqa":
        model = LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=1, head_dim=16, tie_word_embeddings=True))
    elif name == "llama-biased":
        rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
        biases = {"attention_bias": True, "mlp_bias": True}
        model = LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=4, **biases, rope_parameters=rope))
    elif name == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**SHAPE, num_key_value_heads=2))
    elif name == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_key_value_heads=1, head_dim=16))
    elif name == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(**GPT2_SHAPE))
    else:
        model = GPTNeoXForCausalLM(GPTNeoXConfig(**SHAPE))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(0.3 * torch.randn_like(weight))
    return model.eval()


def tiny_tokenizer():
    """One token per word; texts are joined without spaces between them."""
    inner = Tokenizer(models.BPE({word: number for number, word in enumerate(WORDS)}, []))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    special = {"pad_token": "<pad>", "eos_token": "<end>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **special, clean_up_tokenization_spaces=False)


TOKENIZER = tiny_tokenizer()


def captured_sampler(model, *, max_rows=512, page_size=16, record=(), tokenizer=TOKENIZER):
    """A sampler that decodes as on a GPU, here in plain torch."""
    sampler = LocalSampler(model, tokenizer, max_rows=max_rows, record=record)
    sampler._engine = GraphEngine(model, sampler._end_tokens, reference_ops, page_size=page_size)
    return sampler


def prompts(*lengths, seed=0):
    """Random prompts of these lengths."""
    rng = np.random.default_rng(seed)
    return [Prompt(f"question-{place}", rng.integers(2, len(WORDS), length)) for place, length in enumerate(lengths)]


@torch.no_grad()
def plain_scores(model, prompt_P, tokens_T, temperature):
    """log π and entropies of a completion, by one plain forward over prompt + completion: no cache, no padding."""
    joined = torch.from_numpy(np.concatenate((prompt_P, tokens_T)))[None]
    logits_TV = model(input_ids=joined, use_cache=False).logits[0, len(prompt_P) - 1 : -1].double() / temperature
    logprobs_TV = torch.log_softmax(logits_TV, dim=-1)
    entropies_T = -(logprobs_TV.exp() * logprobs_TV).sum(dim=-1)
    return logprobs_TV[range(len(tokens_T)), tokens_T].numpy(), entropies_T.numpy()


def assert_scored_as_by_plain_forward(model, prompts_B, samples_BG, temperature, tolerance=1e-5):
    for prompt, samples_G in zip(prompts_B, samples_BG, strict=True):
        for sample in samples_G:
            logprobs_T, entropies_T = plain_scores(model, prompt.tokens_P, sample.tokens_T, temperature)
            np.testing.assert_allclose(sample.logprobs_T, logprobs_T, atol=tolerance, rtol=1e-5)
            np.testing.assert_allclose(sample.entropies_T, entropies_T, atol=tolerance, rtol=1e-5)


def tokens_of(samples_BG):
    """Everything that was drawn, as lists, to compare."""
    return [[sample.tokens_T.tolist() for sample in samples_G] for samples_G in samples_BG]


def assert_same(found_BG, expected_BG):
    """The same texts and tokens; log-probabilities may differ in the last digits."""
    assert tokens_of(found_BG) == tokens_of(expected_BG)
    for one, other in zip(sum(found_BG, ()), sum(expected_BG, ()), strict=True):
        assert (one.text, one.is_finished, one.num_drawn) == (other.text, other.is_finished, other.num_drawn)
        for name in ("logprobs_T", "entropies_T", "margins_T"):
            if getattr(other, name) is not None:
                np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-5)


def set_ends(model, *ends):
    """Make these tokens end a completion."""
    model.generation_config.eos_token_id = list(ends)
    return model
