"""`scrl train` that dies in the middle of its second step: python dies_in_step.py train …"""

from scrl.cli.main import main
from scrl.engines.trl.rollouts import run as trl_run

as_it_is = trl_run.Recorder.on_step


def on_step(self, step):
    as_it_is(self, step)
    if step.number == 1:
        raise RuntimeError("the power is gone")


trl_run.Recorder.on_step = on_step
main()
