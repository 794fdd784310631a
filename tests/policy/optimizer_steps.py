"""A small network whose weights an optimizer moves."""

import torch
from torch import nn

from scrl.policy.adamw import MasterAdamW
from scrl.policy.optimizer_choice import open_optimizer
from scrl.policy.settings import OptimizerSettings

EVERY = [(True, "float32"), (False, "float32"), (True, "bfloat16"), (False, "bfloat16")]
"""Whether the weights are an adapter's, whose masters are whole, and how averages are kept."""


def open_for(model, has_adapter=False, updates=100, **settings):
    return open_optimizer(model.parameters(), OptimizerSettings(**settings), updates, has_adapter=has_adapter)


def layers(dtype=torch.bfloat16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3, bias=False)).to(dtype)


def give_gradient(model, number):
    random = torch.Generator().manual_seed(number)
    inputs = torch.randn(4, 8, generator=random).to(model[0].weight.dtype)
    model(inputs).float().square().sum().backward()


def take_step(model, optimizer, number, passes=1):
    """One update with the gradients of several backward passes; its norm."""
    optimizer.expect(passes)
    for each in range(passes):
        give_gradient(model, 10 * number + each)
        optimizer.collect()
    return float(optimizer.step())


def masters_of(optimizer):
    if isinstance(optimizer, MasterAdamW):
        return [master.detach().flatten() for master in optimizer._masters]
    return [torch.cat([weight.master(part) for part in weight.parts()]) for weight in optimizer._weights]


def copies(model):
    return [weight.detach().clone() for weight in model.parameters()]


def assert_equal(weights, others):
    assert all(torch.equal(one, other) for one, other in zip(weights, others, strict=True))
