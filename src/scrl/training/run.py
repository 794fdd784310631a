"""A run put together: settings → questions, model, sampler, method, policy, folder."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scrl.answers.judge import Judge, MathVerifyJudge
from scrl.credit.assign import CreditRule
from scrl.credit.elsewhere import LastVotes, require_others
from scrl.credit.method import Tree
from scrl.credit.tally import count_votes
from scrl.data.prompts import prompt_tokens
from scrl.errors import InputError
from scrl.evaluation.label_quality import Triple
from scrl.evaluation.oracle import require_gold
from scrl.evaluation.samplers import check_sampler, open_sampler
from scrl.policy.checkpoint import read_state, restore, write_state, write_weights
from scrl.policy.model import LanguageModel, check_savable, device_of, load_model
from scrl.policy.policy import Policy, UpdateReport
from scrl.records import Credit, Question, Sampled
from scrl.rollout.embedding import Embed, load_embedder
from scrl.rollout.endings import OnGroup
from scrl.rollout.local import Prompt
from scrl.rollout.sampler import Sampler
from scrl.rollout.sampling import SamplingSettings
from scrl.rollout.tree import sample_tree
from scrl.training.config import RunConfig
from scrl.training.credit_workers import CreditWorkers, number_of_workers
from scrl.training.crediting import Crediting, asked, recorded
from scrl.training.dynamic_sampling import check_others
from scrl.training.early_verdicts import draw_until_decided
from scrl.training.guard import WATCHED
from scrl.training.model_card import model_card
from scrl.training.prompting import usable_questions
from scrl.training.run_folder import RunFolder
from scrl.training.stream import QuestionStream
from scrl.training.trackers import Tracker, check_tracker, open_tracker
from scrl.training.watchers import Watcher


@dataclass
class State:
    """Where a run stands; all of it is saved with a checkpoint."""

    step: int = 0
    labels: dict[str, str | None] = field(default_factory=dict)
    """The last positive label of each question."""
    history: list[dict[str, float]] = field(default_factory=list)
    """What the guard and the choice of the best checkpoint look at, a step each."""
    best_score: float | None = None
    best_step: int | None = None
    sampler_rows: int = 0
    evaluated_at: int | None = None
    reference_shares: dict[str, float] = field(default_factory=dict)
    """How far the start model agreed with itself on each question, where a method needs to know."""
    is_released: bool = False
    """Whether the sampler gives its memory back before every update: memory has run out in one."""
    last_votes: LastVotes = field(default_factory=LastVotes)
    """What every question answered at its last visit."""
    questions: str = ""
    """A fingerprint of what is trained on, so that a resumed run cannot go on with something else."""

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint."""
        return vars(self) | {"last_votes": self.last_votes.to_json()}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> State:
        """What `to_json` wrote; checkpoints from before 0.2 know nothing of votes."""
        return cls(**{**saved, "last_votes": LastVotes.from_json(saved.get("last_votes", {}))})


@dataclass(eq=False)
class Run:
    """The collaborators of the loop."""

    config: RunConfig
    folder: RunFolder
    stream: QuestionStream
    held_out: Sequence[Question]
    rule: CreditRule
    language_model: LanguageModel
    sampler: Sampler
    policy: Policy
    watcher: Watcher
    gold_judge: Judge = field(default_factory=MathVerifyJudge)
    """For gold alone: what it remembers must not reach the votes."""
    embed: Embed | None = None
    """Texts → vectors, where a method needs that."""
    trackers: list[Tracker] = field(default_factory=list)
    credit_workers: CreditWorkers | None = None
    """Classify while sampling goes on, where that is asked for."""
    state: State = field(default_factory=State)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """With trackers and credit workers, for as long as steps are taken."""
        with ExitStack() as stack:
            for name in self.config.trackers:
                self.trackers.append(open_tracker(name, self.folder.path, self.config.model_dump(mode="json")))
                stack.callback(self.trackers[-1].close)
            workers = number_of_workers(self.config, self.language_model.device)
            if workers:
                self.credit_workers = CreditWorkers(self.rule, workers)
                stack.callback(self.credit_workers.close)
            yield

    def update(self, sampled_B: Sequence[Sampled], credit_B: Sequence[Credit]) -> UpdateReport:
        """The optimizer steps of one step.

        The sampler keeps its memory and its captured steps beside them where there is room for both. Not beside the
        very first, in which the optimizer takes what it keeps; nor where it has weights of its own, which grow old.
        """
        is_released = self.state.is_released or self.policy.optimizer.update == 0 or not self.sampler.shares_weights
        if is_released:
            self.sampler.release()
        self.policy.make_room = _no_more_room if is_released else self._make_room
        return self.policy.update(sampled_B, credit_B, self.config.questions_per_update)

    def _make_room(self) -> str | None:
        """Memory ran out in an update: the sampler gives its own back; None where it has."""
        if self.state.is_released:
            return None
        self.state.is_released = True
        self.sampler.release()
        return "the sampler's is given back before every update from now on"

    def draw(
        self,
        questions: Sequence[Question],
        settings: SamplingSettings,
        number: int,
        step: int | str,
        tree: Tree | None = None,
        first: int = 0,
        on_group: OnGroup | None = None,
    ) -> list[Sampled]:
        """Completions `first`, `first` + 1, … for some questions; with a tree they share their beginnings."""
        tokenizer, seed = self.language_model.tokenizer, self.config.seed
        prompts = [Prompt(q.id, prompt_tokens(q, tokenizer, self.config.prompt)) for q in questions]
        if tree is None:
            samples_B = self.sampler.sample(
                prompts, settings, num_samples=number, seed=seed, step=step, first=first, on_group=on_group
            )
        else:
            samples_B = sample_tree(self.sampler, prompts, settings, tree, seed=seed, step=step)
        at = step if isinstance(step, int) else self.state.step
        triples = zip(questions, prompts, samples_B, strict=True)
        return [Sampled(question, prompt.tokens_P, samples, at) for question, prompt, samples in triples]

    def rollouts(self, questions: Sequence[Question], on_group: OnGroup | None = None) -> list[Sampled]:
        """The groups of some questions at this step, drawn as the method plans it.

        `on_group` hears of each as it is drawn, where groups are drawn at one go.
        """
        if self.config.early_verdicts:
            return self._rollouts_until_decided(questions)
        plan = self.rule.method.plan
        tree = plan(self.config.completions, self.rule.settings) if plan else None
        forms = asked(self.rule, questions)
        number, step = self.config.completions, self.state.step
        return self.draw(forms, self.config.sampling, number, step, tree, on_group=on_group)

    def _rollouts_until_decided(self, questions: Sequence[Question]) -> list[Sampled]:
        """Those to be trained on, and more until the votes of all of them could change nothing."""
        config, rule = self.config, self.rule
        return draw_until_decided(
            lambda asked, first, number: self.draw(asked, config.sampling, number, self.state.step, first=first),
            lambda sampled: rule.is_decided(rule.classify(sampled.group), config.completions),
            questions,
            least=config.trained,
            most=config.completions,
        )

    @property
    def crediting(self) -> Crediting:
        """The rule, and what its needs are met from."""
        return Crediting(self.rule, self.gold_judge, self.state.reference_shares, self.embed, self.state.last_votes)

    def look_at_the_start_model(self) -> None:
        """How far the start model agrees with itself on every question, for methods that weigh questions by it."""
        if "reference_share" not in self.rule.needs or self.state.reference_shares:
            return
        forms, size = asked(self.rule, self.stream.questions), self.config.questions_per_step
        self.watcher.note(f"{self.config.completions} completions of each of {len(forms)} questions by the start model")
        shares = {}
        for first in range(0, len(forms), size):  # so that not all of them are held at a time
            part = forms[first : first + size]
            for sampled in self.draw(part, self.config.sampling, self.config.completions, "reference"):
                tally = count_votes(self.rule.classify(sampled.group), None)
                shares[sampled.question.id] = max(tally.counts_K, default=0) / tally.size
        self.state.reference_shares = shares  # all or none: a run that is stopped on the way looks again

    def save_last(self) -> None:
        """The checkpoint a killed run goes on from."""
        self.state.sampler_rows = self.sampler.max_rows
        state = self.state.to_json() | {"files": self.folder.lengths()}

        def write(place: Path) -> None:
            write_weights(self.language_model, place, model_card(self.config, self.state.step))
            write_state(self.policy, place, state)

        self.folder.save(self.folder.last, write)

    def save_best(self, score: float) -> None:
        """The checkpoint to use, by a criterion that needs no gold."""
        self.state.best_score, self.state.best_step = score, self.state.step
        card = model_card(self.config, self.state.step)
        self.folder.save(self.folder.best, lambda place: write_weights(self.language_model, place, card))

    def restore(self) -> None:
        """Go on from the last checkpoint, or from the start when there is none."""
        self.folder.recover()
        if not self.folder.last.is_dir():
            self.folder.empty()
            return
        saved = read_state(self.folder.last)
        if saved["questions"] != self.state.questions:
            raise InputError(f"{self.config.questions}: is not what the run was started with; put it back to resume")
        restore(self.policy, self.folder.last)
        self.folder.cut(saved.pop("files"))
        saved.pop("micro_batch")
        saved.pop("micro_tokens", None)
        self.state = State.from_json(saved)
        self.sampler.max_rows = self.state.sampler_rows

    def remember(self, metrics: dict[str, Any], triples_B: Sequence[Triple]) -> int:
        """Note what later steps will look at, and count the step as done; its number."""
        kept = {key: metrics[key] for key in (*WATCHED, "agreement") if key in metrics}
        self.state.history.append(kept)
        self.state.labels |= {sampled.question.id: credit.labels.positive for sampled, _, credit in triples_B}
        visits = ((sampled.question.id, credit.tally) for sampled, _, credit in triples_B)
        self.state.last_votes = self.state.last_votes.after(visits)
        self.state.step += 1
        return self.state.step - 1


def _no_more_room() -> None:
    """Nobody has memory to give back."""


def open_run(config: RunConfig, out: Path, watcher: Watcher, *, resume: bool = False) -> Run:
    """Load what a run needs; nothing is written before the model and the questions are found to be usable."""
    if config.compute.threads is not None:
        torch.set_num_threads(config.compute.threads)
    check_sampler(config.compute)
    for name in config.trackers:
        check_tracker(name)
    workers = number_of_workers(config, device_of(config.compute))
    loaded, held_out, rule = config.load_questions(), config.load_held_out(), _rule(config, workers)
    require_gold(rule, loaded.questions)
    if "elsewhere" in rule.needs:
        require_others([question.id for question in loaded.questions], rule.method.name)
    seed_everything(config.seed)
    language_model = load_model(
        config.model, config.compute, lora=config.lora, trust_remote_code=config.trust_remote_code
    )
    check_savable(language_model)
    ask = partial(usable_questions, config, language_model.tokenizer, language_model.model.config)
    questions, notes = ask(loaded.questions)
    held_out_questions, more_notes = ask(held_out.questions) if held_out else ([], [])
    stream = QuestionStream(questions, config.questions_per_step, config.seed, config.drop_last)
    check_others(stream, config.dynamic_sampling)
    sampler = open_sampler(
        language_model,
        config.compute,
        max_length=config.prompt.max_tokens + config.sampling.max_tokens,
        seed=config.seed,
        record=recorded(rule),
        trust_remote_code=config.trust_remote_code,
        on_fewer=watcher.note,
    )
    policy = _policy(config, language_model, stream, groups=len(asked(rule, questions[:1])))
    embed = load_embedder(rule.settings, language_model.device) if "embedding" in rule.needs else None
    folder = RunFolder(out) if resume else RunFolder.create(out, config, str(language_model.device))
    for note in (*notes, *more_notes, sampler.note, policy.note):
        if note:
            watcher.note(note)
    run = Run(
        config=config,
        folder=folder,
        stream=stream,
        held_out=held_out_questions,
        rule=rule,
        language_model=language_model,
        sampler=sampler,
        policy=policy,
        watcher=watcher,
        embed=embed,
    )
    run.state.questions = fingerprint(asked(rule, questions))
    if resume:
        run.restore()
    return run


def _rule(config: RunConfig, workers: int) -> CreditRule:
    """The method, with a judge that has a process for every worker."""
    return replace(config.rule(), judge=MathVerifyJudge(workers=workers)) if workers else config.rule()


def _policy(config: RunConfig, language_model: LanguageModel, stream: QuestionStream, *, groups: int) -> Policy:
    """What is trained, on `groups` groups of completions a question."""
    return Policy(
        language_model,
        config.loss,
        config.optimizer,
        config.compute,
        updates=stream.updates(config.steps, config.questions_per_update, groups),
        temperature=config.sampling.temperature,
        max_tokens=config.sampling.max_tokens,
    )


def fingerprint(questions: Sequence[Question]) -> str:
    """The same for the same questions, whatever is known about their answers."""
    texts = "\x1f".join(part for question in questions for part in (question.id, question.text))
    return hashlib.blake2b(texts.encode(), digest_size=16).hexdigest()


def seed_everything(seed: int) -> None:
    """Seed what libraries draw from; everything of our own is derived from names instead (scrl.seeds)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
