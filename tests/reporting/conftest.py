import pytest
import yaml
from line_files import write_lines
from run_files import CONFIG, evaluation_line, metric_lines, rollout_lines


@pytest.fixture
def make_run(tmp_path):
    """A run folder; every file can be given."""

    def make(name="scrl", *, config=CONFIG, metrics=None, evaluations=None, rollouts=None, gold=True):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        scores = [0.4375, 0.5, 0.6125] if gold else [None] * 3
        points = [evaluation_line(step, score) for step, score in zip((0, 15, 30), scores, strict=True)]
        (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        write_lines(folder / "metrics.jsonl", metric_lines(gold=gold) if metrics is None else metrics)
        write_lines(folder / "evaluations.jsonl", points if evaluations is None else evaluations)
        write_lines(folder / "rollouts.jsonl", rollout_lines(gold=gold) if rollouts is None else rollouts)
        return folder

    return make
