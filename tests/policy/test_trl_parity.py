"""The same rows give the same gradient as TRL's GRPOTrainer: GRPO, DAPO, Dr. GRPO, GSPO, with and without KL."""

import importlib.util

import pytest
import torch
from updates import (
    ADVANTAGES,
    assert_close,
    collected_gradient,
    credit_of,
    disturb,
    draw_group,
    make_policy,
    small_model,
)

from scrl.policy.settings import LOSS_VARIANTS

pytestmark = [
    pytest.mark.trl,
    pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="trl is not installed"),
    pytest.mark.filterwarnings("ignore"),  # TRL's and its libraries' own
]
TRL_OPTIONS = {
    "grpo": {"loss_type": "grpo", "epsilon": 0.2},
    "dapo": {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28},
    "dr-grpo": {"loss_type": "dr_grpo", "epsilon": 0.2},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
}  # fmt: skip


def make_trainer(language_model, folder, temperature, **options):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=6,
        num_generations=6,
        max_completion_length=12,
        temperature=temperature,
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        use_bias_correction_kl=False,  # TRL's own choice is True: k3 · r
        **options,
    )
    return GRPOTrainer(
        model=language_model.model, reward_funcs=lambda completions, **columns: [0.0] * len(completions), args=config,
        train_dataset=Dataset.from_list([{"prompt": "Compute 1+2."}]), processing_class=language_model.tokenizer,
    )  # fmt: skip


def trl_inputs(sampled):
    """The group as TRL holds it. It was drawn from the start model, which is the reference of the KL too."""
    lengths = [len(sample.tokens_T) for sample in sampled.samples_G]
    completion_ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    mask, old = torch.zeros_like(completion_ids), torch.zeros(completion_ids.shape)
    for row, sample in enumerate(sampled.samples_G):
        completion_ids[row, : lengths[row]] = torch.from_numpy(sample.tokens_T)
        old[row, : lengths[row]] = torch.from_numpy(sample.logprobs_T).float()
        mask[row, : lengths[row]] = 1
    prompt_ids = torch.from_numpy(sampled.prompt_P).repeat(len(lengths), 1)
    return {
        "prompt_ids": prompt_ids, "prompt_mask": torch.ones_like(prompt_ids), "completion_ids": completion_ids,
        "completion_mask": mask, "advantages": torch.tensor(ADVANTAGES), "old_per_token_logps": old,
        "ref_per_token_logps": old, "num_items_in_batch": mask.sum(),
    }  # fmt: skip


@pytest.mark.parametrize("kl_weight", [0.0, 0.3])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("variant", TRL_OPTIONS)
def test_the_gradient_is_trls(variant, temperature, kl_weight, tmp_path):
    language_model = small_model()
    sampled = draw_group(language_model, temperature=temperature)
    assert len({len(sample.tokens_T) for sample in sampled.samples_G}) > 1
    policy = make_policy(language_model, temperature=temperature, kl_weight=kl_weight, **LOSS_VARIANTS[variant])
    disturb(language_model)  # so that some ratios are clipped
    found, sums = collected_gradient(policy, sampled, credit_of())
    assert 0 < sums.clipped < sums.tokens

    policy.optimizer.clear()
    trainer = make_trainer(language_model, tmp_path, temperature, **TRL_OPTIONS[variant])
    trainer.beta = kl_weight  # in the config it would make TRL load a reference model by name
    inputs = trl_inputs(sampled)
    loss = trainer._compute_loss(trainer.model.eval(), inputs)  # private: trl is pinned
    loss.backward()
    wanted = torch.cat([weight.grad.flatten() for weight in trainer.model.parameters()])
    assert_close(found, wanted, 1e-5)
    assert sums.loss == pytest.approx(float(loss.detach()), abs=1e-5)
