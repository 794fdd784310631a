"""`scrl train` that dies in the middle of its second step: python dies_in_step.py train …"""

from scrl.cli.main import main
from scrl.engines.trl import run as trl_run

as_it_is = trl_run.TrlRun.on_step


def on_step(self, groups_B, metrics):
    as_it_is(self, groups_B, metrics)
    if groups_B[0].sampled.step == 1:
        raise RuntimeError("the power is gone")


trl_run.TrlRun.on_step = on_step
main()
