"""A stand-in for vLLM 0.24, with the names and attributes of its classes that we use, over a small model on the CPU.

It shows that we call vLLM correctly, not that vLLM behaves as it does here: for that there is tests/gpu/test_vllm.py.
Like vLLM it starts with random weights, drops them when it sleeps, gives completion i the seed `seed + i`, and returns
requests as they finish, here the last one first.
"""

import sys
import types
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch


@dataclass
class SamplingParams:
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int | None = 16
    stop_token_ids: list[int] | None = None
    seed: int | None = None
    logprobs: int | None = None
    flat_logprobs: bool = False
    detokenize: bool = True

    def __post_init__(self):
        assert 0 <= self.temperature <= 2
        assert self.temperature > 0 or self.n == 1


@dataclass
class FlatLogprobs:
    logprobs: list[float] = field(default_factory=list)


@dataclass
class CompletionOutput:
    index: int
    token_ids: list[int]
    logprobs: FlatLogprobs | None
    finish_reason: str | None


@dataclass
class RequestOutput:
    request_id: str
    outputs: list[CompletionOutput]
    finished: bool


class Inner:
    """vLLM's model; `load_weights` returns the names of those it was given, and silently drops those of `deaf_to`."""

    def __init__(self, model):
        self.model, self.deaf_to = model, ()

    def named_parameters(self):
        return self.model.named_parameters()

    def load_weights(self, weights):
        own, given = dict(self.model.named_parameters()), dict(weights)
        for name in given.keys() - {*self.deaf_to}:
            own[name].data.copy_(given[name])
        return set(given)


class Engine:
    def __init__(self, llm):
        self.llm = llm
        self.waiting = []

    def has_unfinished_requests(self):
        return bool(self.waiting)

    def step(self):
        request_id, prompt, params = self.waiting.pop()
        outputs = [self.llm.draw(prompt["prompt_token_ids"], params, index) for index in range(params.n)]
        return [RequestOutput(request_id, outputs, finished=True)]


class LLM:
    started: ClassVar[list["LLM"]] = []

    def __init__(self, **options):
        self.options = options
        self.inner = Inner(self.random_model(options["model"]))
        self.llm_engine = Engine(self)
        self.events, self.params, self.counter = [], [], 0
        LLM.started.append(self)

    @staticmethod
    def random_model(folder):
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.manual_seed(99)
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).eval()

    def enqueue(self, prompts, sampling_params, *, use_tqdm):
        ids = []
        for prompt, params in zip(prompts, sampling_params, strict=True):
            self.llm_engine.waiting.append((str(self.counter), prompt, params))
            self.params.append(deepcopy(params))
            ids.append(f"{self.counter}-3f9a12cd")
            self.counter += 1
        return ids

    def sleep(self, level=1):
        self.events.append(f"sleep {level}")
        for _, weight in self.inner.named_parameters():
            weight.data.fill_(torch.nan)

    def wake_up(self, tags=None):
        self.events.append(f"wake {tags}")

    def apply_model(self, function):
        self.events.append("load")
        return [function(self.inner)]

    def reset_prefix_cache(self):
        self.events.append("reset")
        return True

    @torch.no_grad()
    def draw(self, prompt, params, index):
        generator = torch.Generator().manual_seed(params.seed + index)
        tokens, logprobs, reason = list(prompt), [], "length"
        for _ in range(params.max_tokens):
            logits = self.inner.model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].float()
            logprobs_V = torch.log_softmax(logits / (params.temperature or 1), dim=-1)
            is_greedy = params.temperature == 0
            token = int(logits.argmax() if is_greedy else torch.multinomial(logprobs_V.exp(), 1, generator=generator))
            tokens.append(token)
            logprobs.append(float(logprobs_V[token]))
            if token in (params.stop_token_ids or ()):
                reason = "stop"
                break
        result = None if params.logprobs is None else FlatLogprobs(logprobs)
        return CompletionOutput(index, tokens[len(prompt) :], result, reason)


def put_in_place(monkeypatch, llm: Any = LLM) -> None:
    """What `from vllm import …` finds."""
    module: Any = types.ModuleType("vllm")
    module.LLM, module.SamplingParams = llm, SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setattr(LLM, "started", [])
