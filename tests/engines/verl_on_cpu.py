"""verl without a GPU: a platform for its FSDP2 engine, and that engine in place of the workers of a trainer.

verl has no platform and no sampler for the CPU. So completions are put into its queue by hand, or by verl's own agent
loops from a script (`Writer`), and the two calls that its trainer makes to its workers are answered in this process, by
verl's own engine and loss. Queue and trainer are verl's, and Ray is real.
"""

import contextlib
import json
import os
import sys
import tempfile
import types
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from scrl.config import build_config
from scrl.engines.verl.settings import RunFacts, verl_settings
from scrl.records import Question, Sample, Sampled

PROMPTS = ("two and three? ", "what is it? ")
# 5 of 8 agree on 5, and two on 6; eight different answers, one of them missing
VOTES = (["5", "5", "6", "5", None, "6", "5", "5"], ["1", "2", "3", None, "5", "6", "7", "8"])
TEXTS = tuple([f"so \\boxed{{{vote}}}" if vote else "I do not know" for vote in votes] for votes in VOTES)
TEMPERATURE = 0.7


def register_cpu():
    """As much of a platform as an engine needs."""
    from verl.plugin.platform.platform_base import PlatformBase
    from verl.plugin.platform.platform_manager import PlatformRegistry

    module: Any = types.ModuleType("torch_cpu")
    for name in dir(torch.cpu):
        setattr(module, name, getattr(torch.cpu, name))
    for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"):
        setattr(module, name, lambda *_, **__: 0)
    module.mem_get_info = lambda *_, **__: (1 << 33, 1 << 34)
    module.empty_cache = lambda: None
    module.get_rng_state, module.set_rng_state = torch.get_rng_state, torch.set_rng_state
    module.manual_seed = module.manual_seed_all = torch.manual_seed
    parts = {name: (lambda self, *_, **__: None) for name in PlatformBase.__abstractmethods__}
    parts |= {
        "device_name": "cpu", "vendor_name": "cpu", "device_module": module, "is_available": lambda self: True,
        "current_device": lambda self: "cpu", "device_count": lambda self: 1,
        "get_device_capability": lambda self, _=0: (None, None), "communication_backend_name": lambda self: "gloo",
        "visible_devices_envvar": lambda self: "CPU_VISIBLE_DEVICES",
        "nvtx_range": lambda self, _: contextlib.nullcontext(), "ray_resource_name": lambda self: "CPU",
        "ray_noset_envvars": lambda self: [], "is_ipc_supported": lambda self: False,
    }  # fmt: skip
    PlatformRegistry.register("cpu")(type("PlatformCPU", (PlatformBase,), parts))


def start_ray():
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # agent loops do not find tests
    ray.init(
        num_cpus=3,  # two for the queue, one for an agent loop
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=tempfile.mkdtemp(prefix="ray"),  # short: it is part of the names of sockets
        object_store_memory=200 * 2**20,
    )


def compose(settings):
    """verl's configuration with some settings on top, as its command would have it."""
    import verl.trainer.config
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf, open_dict

    with initialize_config_dir(os.path.dirname(verl.trainer.config.__file__), version_base=None):
        config = compose("ppo_trainer")
    with open_dict(config):
        config.merge_with(OmegaConf.create(settings))
        config.transfer_queue.enable = True
        config.transfer_queue.backend.SimpleStorage.num_data_storage_units = 1
        config.actor_rollout_ref.rollout.calculate_log_probs = False  # no sampler, none of its log-probs
    return config


def open_engine(folder, actor):
    """verl's FSDP2 engine around the model in `folder`, in one process."""
    import torch.distributed as dist
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    if not dist.is_initialized():
        dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/gloo", rank=0, world_size=1)
    model = HFModelConfig(
        path=str(folder), override_config={"attn_implementation": "eager"}, use_remove_padding=False,
        enable_gradient_checkpointing=False,
    )  # fmt: skip
    model.model_type = "language_model"
    single = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    sizes = {"micro_batch_size_per_gpu": 4, "infer_micro_batch_size_per_gpu": 4}
    settings = FSDPEngineConfig(
        strategy="fsdp2", use_torch_compile=False, use_dynamic_bsz=False, model_dtype="fp32", mixed_precision=single,
        **sizes,
    )  # fmt: skip
    settings.use_remove_padding = False
    optimizer = FSDPOptimizerConfig(lr=float(actor.optim.lr), total_training_steps=10)
    engine = FSDPEngineWithLMHead(
        model_config=model, engine_config=settings, checkpoint_config=CheckpointConfig(), optimizer_config=optimizer
    )
    engine.initialize()
    return engine


def nested(rows):
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


class Workers:
    """What a trainer asks of its workers, answered by an engine in this process."""

    _dispatch_info = {"actor": [0]}  # noqa: RUF012 - verl's name

    def __init__(self, engine, actor):
        self.engine, self.actor = engine, actor
        self.entropies = {}
        """By key: those of the completion's tokens, as verl's engine computed them."""
        self.seen = []
        """For each update the keys, rewards and advantages that it was given, and verl's metrics."""

    def rows(self, batch, *fields):
        import transfer_queue as tq

        names = ["input_ids", "responses", "response_mask", *fields]
        data = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=names)
        return {name: list(data[name].unbind()) for name in names}

    def table(self, rows, **settings):
        from verl.utils import tensordict_utils
        from verl.utils.dataset.dataset_utils import DatasetPadMode

        pairs = list(zip(rows["input_ids"], rows["responses"], strict=True))
        table = tensordict_utils.get_tensordict(
            {
                **{name: nested(values) for name, values in rows.items()},
                "loss_mask": nested(rows["response_mask"]),
                "position_ids": nested(torch.arange(len(tokens)) for tokens, _ in pairs),
                "prompts": nested(tokens[: len(tokens) - len(response)] for tokens, response in pairs),
            }
        )
        plain = {"use_remove_padding": False, "use_dynamic_bsz": False, "use_fused_kernels": False}
        padding = {"pad_mode": DatasetPadMode.NO_PADDING, "pad_token_id": 0, "micro_batch_size_per_gpu": 4}
        tensordict_utils.assign_non_tensor(table, **plain, **padding, **settings)
        return table

    def compute_log_prob(self, batch):
        import transfer_queue as tq
        from tensordict import TensorDict

        info = batch.extra_info
        table = self.table(
            self.rows(batch), calculate_entropy=True, compute_loss=False, temperature=info["temperature"]
        )
        with self.engine.eval_mode():
            found = self.engine.infer_batch(table, loss_function=None)["model_output"]
        rows = zip(batch.keys, found["entropy"].unbind(), table["responses"].unbind(), strict=True)
        self.entropies |= {key: row[-len(response) - 1 : -1].double().numpy() for key, row, response in rows}
        fields = {name: nested(row.float() for row in found[name].unbind()) for name in ("entropy", "log_probs")}
        tq.kv_batch_put(keys=batch.keys, partition_id="train", fields=TensorDict(fields, batch_size=len(batch)))
        return batch

    def update_actor(self, batch):
        from omegaconf import OmegaConf
        from verl.utils.config import omega_conf_to_dataclass
        from verl.workers.utils.losses import ppo_loss

        info = batch.extra_info
        rows = self.rows(batch, "old_log_probs", "advantages", "rm_scores")
        scores = [float(score.sum()) for score in rows.pop("rm_scores")]
        config = omega_conf_to_dataclass(OmegaConf.merge(self.actor, {"ppo_micro_batch_size_per_gpu": 4}))
        metrics = []
        for first in range(0, len(batch), info["mini_batch_size"]):
            part = {name: values[first : first + info["mini_batch_size"]] for name, values in rows.items()}
            settings = {"temperature": info["temperature"], "global_batch_size": info["mini_batch_size"]}
            table = self.table(part, calculate_entropy=False, compute_loss=True, **settings)
            with self.engine.train_mode():
                metrics.append(
                    self.engine.train_batch(table, loss_function=partial(ppo_loss, config=config))["metrics"]
                )
        self.seen.append(
            {
                "scores": dict(zip(batch.keys, scores, strict=True)),
                "advantages": dict(zip(batch.keys, rows["advantages"], strict=True)),
                "metrics": metrics,
            }
        )
        return {"metrics": {"mfu": 0.0, "grad_norm": [float(each["grad_norm"]) for each in metrics]}}


def put_completions(prompts, completions, tokenizer, *, step=1, extra=True):
    """Fill the queue as verl's agent loops do; (keys, tags)."""
    import transfer_queue as tq
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    keys, fields, tags = [], [], []
    for place, (prompt, texts) in enumerate(zip(prompts, completions, strict=True)):
        head = torch.tensor(tokenizer.encode(prompt), dtype=torch.int64)
        for sample, text in enumerate(texts):
            tail = torch.tensor([*tokenizer.encode(text), tokenizer.eos_token_id], dtype=torch.int64)
            keys.append(f"s{step}u{place}_{sample}_0")
            field = {
                "prompts": head, "responses": tail, "response_mask": torch.ones_like(tail), "uid": f"s{step}u{place}",
            }  # fmt: skip
            field |= {"input_ids": torch.cat([head, tail]), "rm_scores": torch.zeros(len(tail))}
            if extra:
                field["extra_info"] = {"index": place, "question_id": f"q{place}"}
            fields.append(field)
            lengths = {"prompt_len": len(head), "response_len": len(tail), "seq_len": len(head) + len(tail)}
            steps = dict.fromkeys(("global_steps", "min_global_steps", "max_global_steps"), step)
            tags.append({"status": "success"} | lengths | steps)
    tq.kv_batch_put(keys=keys, partition_id="train", fields=list_of_dict_to_tensordict(fields), tags=tags)
    return keys, tags


def write_tiny_model(folder):
    """A Qwen2 with random weights and a tokenizer of single bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary |= {"<eos>": len(vocabulary), "<pad>": len(vocabulary) + 1}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>").save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
    ends = {"eos_token_id": vocabulary["<eos>"], "pad_token_id": vocabulary["<pad>"], "bos_token_id": None}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(vocabulary), **sizes, **heads, **ends))
    with torch.no_grad():  # far from uniform, so that entropies differ
        for weight in model.parameters():
            weight.mul_(8)
    model.save_pretrained(folder)


EAGER = {"actor_rollout_ref": {"model": {"override_config": {"attn_implementation": "eager"}}}}


def run_config(folder, **changes):
    values = {
        "model": str(folder), "questions": "arithmetic:easy:train:2", "method": "scrl", "engine": "verl", "completions": 8,
        "trained": 4, "questions_per_update": 2, "sampling": {"temperature": TEMPERATURE, "max_tokens": 40},
        "optimizer": {"learning_rate": 1e-3, "max_grad_norm": 1e6}, "seed": 3, "engine_options": EAGER,
    }  # fmt: skip
    return build_config(values | changes)


def verl_config(folder, **changes):
    facts = RunFacts(str(folder), questions=2, prompt_tokens=20)
    return compose(verl_settings(run_config(folder, **changes), facts))


class Writer:
    """In place of verl's servers: the n-th completion of a question is the n-th of a script, and each is noted down."""

    def __init__(self, model, script, log):
        self.model, self.script, self.log = str(model), script, str(log)

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        from transformers import AutoTokenizer
        from verl.workers.rollout.replica import TokenOutput

        tokenizer = AutoTokenizer.from_pretrained(self.model)
        prompt = tokenizer.decode(prompt_ids)
        with open(self.log, "a+") as log:
            log.seek(0)
            asked = next(text for text in self.script if text in prompt)
            number = sum(json.loads(line)["asked"] == asked for line in log)
            log.write(json.dumps({"asked": asked, "prompt": prompt} | sampling_params) + "\n")
        answer = self.script[asked][number]
        if isinstance(answer, Exception):
            raise answer
        text = f"so \\boxed{{{answer}}}" if answer else "I do not know"
        return TokenOutput(token_ids=[*tokenizer.encode(text), tokenizer.eos_token_id])


def open_whole_trainer(config, workers, folder, agent_loops):
    """The trainer with its table of questions, and verl's agent loops to complete them."""
    trainer = open_trainer(config, workers, folder)
    trainer.processor, trainer.agent_loop_manager, trainer.replay_buffer.poll_interval = None, agent_loops, 0.1
    trainer._init_dataloader()
    return trainer


def take_whole_step(trainer, step):
    """A step of verl's, from its table of questions to the update; (the questions trained on, metrics)."""
    import transfer_queue as tq

    trainer.global_steps, trainer.timing_raw, metrics = step, {}, {}
    batch = trainer.step(metrics, trainer.timing_raw)
    rows = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["extra_info"])["extra_info"]
    tq.kv_clear(keys=batch.keys, partition_id="train")
    return [row["question_id"] for row in rows], metrics


def open_workers(config, folder):
    return Workers(open_engine(folder, config.actor_rollout_ref.actor), config.actor_rollout_ref.actor)


def open_trainer(config, workers, folder):
    """The trainer as verl finds it, with what it would sample already in the queue."""
    from transformers import AutoTokenizer
    from verl.trainer.ppo.v1 import get_trainer_cls

    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
    trainer.tokenizer = AutoTokenizer.from_pretrained(folder)
    trainer.actor_rollout_wg = workers
    trainer.on_sample_end = lambda: None
    trainer.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[])
    return trainer


def take_step(trainer, texts=TEXTS, *, step=1, extra=True):
    """One step of verl's; (the rows trained on, metrics)."""
    from transfer_queue import KVBatchMeta

    keys, tags = put_completions(PROMPTS[: len(texts)], texts, trainer.tokenizer, step=step, extra=extra)
    trainer.global_steps, trainer.timing_raw = step, {}
    drawn = KVBatchMeta(partition_id="train", keys=keys, tags=tags)
    trainer.replay_buffer = SimpleNamespace(sample=lambda **_: (drawn, {}))
    metrics = {}
    return trainer._step_once(metrics, {}, sample_batch_size=2), metrics


@torch.no_grad()
def sampled_by_transformers(folder, question, prompt, texts, step):
    """The same completions with log π and H of each token by transformers: the local engine's view."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    head = tokenizer.encode(prompt)
    samples = []
    for text in texts:
        tokens = [*tokenizer.encode(text), tokenizer.eos_token_id]
        logits = model(torch.tensor([head + tokens])).logits[0, len(head) - 1 : -1].double() / TEMPERATURE
        logprobs_TV = logits.log_softmax(-1)
        chosen_T = logprobs_TV.gather(-1, torch.tensor(tokens)[:, None])[:, 0].numpy()
        entropies_T = -(logprobs_TV.exp() * logprobs_TV).sum(-1).numpy()
        samples.append(Sample(text, np.array(tokens), chosen_T, entropies_T, is_finished=True))
    return Sampled(Question(question, prompt), np.array(head), tuple(samples), step)
