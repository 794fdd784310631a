"""Rows to train on, and the update written out plainly: full logits, no padding, one token after the other."""

import math

import numpy as np
import pytest
import torch
from transformers import CohereConfig, CohereForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from scrl.policy import packing
from scrl.policy.losses import token_weights
from scrl.policy.model import LanguageModel, load_model, load_tokenizer
from scrl.policy.policy import Policy, total
from scrl.policy.settings import LOSS_VARIANTS, ComputeSettings, LoraSettings, LossSettings, OptimizerSettings
from scrl.records import Credit, Labels, Question, Sampled, Tally
from scrl.sampling.local import LocalSampler
from scrl.sampling.sampler import Prompt
from scrl.sampling.settings import SamplingSettings

CPU = ComputeSettings(device="cpu")
ADVANTAGES = (1.5, -0.5, 0.25, -1.25, 0.75, -0.75)
SMALL = {
    "vocab_size": 24, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "initializer_range": 0.2,
}  # fmt: skip
VARIANTS = {
    **LOSS_VARIANTS, "pairs": {"mean": "pairs"}, "dual": {"dual_clip": 1.1}, "bonus": {"entropy_bonus": 0.05},
}  # fmt: skip
ENDS = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}


def embedded(**options):
    return load_model("embedded", CPU, **options)


def with_adapter():
    return embedded(lora=LoraSettings(rank=4))


TOKENIZER = load_tokenizer("embedded")


def random_model(kind, config, dtype=torch.float32):
    """A model with random weights and the embedded one's tokenizer."""
    torch.manual_seed(0)
    return LanguageModel(kind.__name__, kind(config).to(dtype), TOKENIZER, torch.device("cpu"), has_adapter=False)


def small_model(dtype=torch.float32):
    return random_model(LlamaForCausalLM, LlamaConfig(**SMALL), dtype)


def tied_gpt2():
    """Another shape: absolute positions, biases, the head tied to the embeddings."""
    shape = {"vocab_size": 24, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "initializer_range": 0.2}
    dropouts = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return random_model(GPT2LMHeadModel, GPT2Config(**shape, **dropouts))


def cohere():
    """A model that scales its logits: head(body) would be wrong for it."""
    return random_model(CohereForCausalLM, CohereConfig(**SMALL, **ENDS, logit_scale=0.25))


def make_policy(
    language_model,
    *,
    micro_batch=16,
    temperature=1.0,
    max_tokens=12,
    updates=10,
    compute=None,
    is_packed=False,
    **settings,
):
    """`settings` are split between the loss and the optimizer by their names; with `is_packed` rows are, as on a GPU."""
    loss = LossSettings(**{key: settings.pop(key) for key in list(settings) if key in LossSettings.model_fields})
    optimizer = OptimizerSettings(**{"learning_rate": 1e-3, "warmup": 0.0, "schedule": "constant"} | settings)
    compute = ComputeSettings(device="cpu", micro_batch=micro_batch, **compute or {})
    options = {"updates": updates, "temperature": temperature, "max_tokens": max_tokens}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "DEVICES", ("cpu",) if is_packed else ())
        return Policy(language_model, loss, optimizer, compute, **options)


def draw_group(language_model, text="Compute 7+8-3.", *, size=6, temperature=1.0, max_tokens=12, step=0):
    """Completions of one question as the sampler draws them: some end by themselves, some are cut."""
    prompt_P = np.array(language_model.tokenizer(text)["input_ids"])
    sampler = LocalSampler(language_model.model, language_model.tokenizer, max_rows=size)
    settings = SamplingSettings(temperature=temperature, max_tokens=max_tokens)
    [samples_G] = sampler.sample([Prompt(text, prompt_P)], settings, num_samples=size, seed=0, step=step)
    return Sampled(Question(text, text), prompt_P, samples_G, step)


def uneven_group(language_model=None):
    """A group of the embedded model's own completions, at most 24 tokens long and of different lengths."""
    sampled = draw_group(language_model or embedded(), max_tokens=24)
    assert len({len(sample.tokens_T) for sample in sampled.samples_G}) > 1
    return sampled


def credit_of(advantages=ADVANTAGES, trained=None):
    size = len(advantages)
    tally = Tally((), (), (-1,) * size, None, None, None)
    trained = tuple(range(size)) if trained is None else trained
    advantages_G = np.asarray(advantages, dtype=np.float64)
    parts = np.maximum(advantages_G, 0), np.minimum(advantages_G, 0)
    return Credit((None,) * size, tally, Labels(), advantages_G, parts, trained, False)


def collected_gradient(policy, sampled, credit):
    """What `Policy.gradient` leaves behind, as one vector, and its sums."""
    policy.optimizer.clear()
    sums = total(policy.gradient(policy.rows([(sampled, credit)])))
    masters = policy.optimizer._masters
    return torch.cat([torch.zeros(m.numel()) if m.grad is None else m.grad.flatten() for m in masters]), sums


def plain_scores(model, prompt_P, tokens_T, temperature):
    """log π and H of each token, as two lists of scalars that autograd can follow."""
    joined = torch.tensor([[*prompt_P.tolist(), *tokens_T.tolist()]])
    logits_LV = model(input_ids=joined, use_cache=False).logits[0]
    logprobs, entropies = [], []
    for place, token in enumerate(tokens_T.tolist()):
        logprobs_V = torch.log_softmax(logits_LV[len(prompt_P) + place - 1] / temperature, dim=-1)
        logprobs.append(logprobs_V[token])
        entropies.append(-(logprobs_V.exp() * logprobs_V).sum())
    return logprobs, entropies


def plain_loss(model, sampled, credit, loss, *, temperature=1.0, max_tokens=12, reference=None):
    """The whole loss, token by token, from the formulas in the books."""
    samples = [sampled.samples_G[row] for row in credit.trained]
    weights = token_weights([len(sample.tokens_T) for sample in samples], loss.mean, max_tokens)
    total = torch.zeros(())
    for sample, row, weight in zip(samples, credit.trained, weights, strict=True):
        advantage = float(credit.advantages[row])
        given = (sampled.prompt_P, sample.tokens_T, temperature)
        logprobs, entropies = plain_scores(model, *given)
        logratios = [new - old for new, old in zip(logprobs, sample.logprobs_T.tolist(), strict=True)]
        if loss.ratio == "completion":
            logratios = [sum(logratios) / len(logratios)] * len(logratios)
        references = logprobs if reference is None else plain_scores(reference, *given)[0]
        for place, logratio in enumerate(logratios):
            ratio = logratio.exp()
            clipped = torch.clamp(ratio, 1 - loss.clip_low, 1 + loss.clip_high)
            token_loss = -torch.min(ratio * advantage, clipped * advantage)
            if loss.dual_clip is not None and advantage < 0:
                token_loss = torch.min(token_loss, torch.tensor(-loss.dual_clip * advantage))
            if loss.kl_weight:
                difference = references[place].detach() - logprobs[place]
                token_loss = token_loss + loss.kl_weight * (difference.exp() - difference - 1)
            token_loss = token_loss - loss.entropy_bonus * entropies[place]
            total = total + float(weight) * token_loss
    return total


def plain_gradient(language_model, *args, **options):
    """(gradient as one vector, loss) by autograd."""
    weights = [weight for weight in language_model.model.parameters() if weight.requires_grad]
    loss = plain_loss(language_model.model, *args, **options)
    grads = torch.autograd.grad(loss, weights, allow_unused=True)
    flat = [torch.zeros_like(w) if g is None else g for g, w in zip(grads, weights, strict=True)]
    return torch.cat([grad.flatten() for grad in flat]), float(loss.detach())


def weights_of(language_model):
    return torch.cat([weight.detach().float().flatten() for weight in language_model.model.parameters()])


def assert_close(vector, other, tolerance=1e-6):
    """Relative to the length of the whole vector."""
    distance, length = float((vector - other).norm()), float(other.norm())
    assert math.isfinite(length)
    assert distance <= tolerance * max(length, 1e-12), f"{distance} apart at length {length}"


def disturb(language_model, size=0.02, seed=7):
    """Move the weights a little, so that ratios are no longer 1."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in language_model.model.parameters():
            if weight.requires_grad:
                weight.add_(size * torch.randn(weight.shape, generator=random))


class Memory:
    """Room for this many rows or tokens in a forward pass of the model's body; records the passes in `runs`."""

    def __init__(self, language_model, room, *, unit="rows", full_after=0):
        self.room, self.unit, self.full_after, self.runs = room, unit, full_after, []
        language_model.model.model.register_forward_pre_hook(self.check, with_kwargs=True)

    def check(self, module, args, kwargs):
        rows, columns = kwargs["input_ids"].shape
        if columns == 3:
            return  # a new policy looks at the model's head
        self.runs.append(rows if self.unit == "rows" else rows * columns)
        if self.runs[-1] > self.room and len(self.runs) > self.full_after:
            raise torch.OutOfMemoryError("no room left")
