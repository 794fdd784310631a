"""What a run starts with, and what it does on every engine that trains in this process.

Nothing is written before the model, the questions and the method are found to be usable.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from scrl.answers.readers import SOUND
from scrl.config import RunConfig
from scrl.credit.elsewhere import few_others, require_others
from scrl.credit.group_metrics import has_signal, is_unanimous
from scrl.credit.label_votes import WHOSE, LabelVotes
from scrl.credit.labels import majority_positive
from scrl.credit.method import Evidence, Method
from scrl.credit.rule import CreditedGroup, CreditRule
from scrl.data.prompts import usable_questions
from scrl.data.questions import LoadedQuestions
from scrl.data.rollouts import rollout_fields
from scrl.errors import InputError, did_you_mean
from scrl.evaluation.evaluate import Conditions, evaluate
from scrl.evaluation.gold import gold_fields, require_gold, truth_for
from scrl.files.run_state import Standing
from scrl.listener import Listener
from scrl.metrics import SETS
from scrl.policy.model import LanguageModel, check_savable, load_model, model_identity
from scrl.policy.settings import ComputeSettings
from scrl.records import Question, Sampled
from scrl.reporting.evaluations import EvaluationProtocol
from scrl.reporting.text import counted, duration
from scrl.sampling.settings import SamplingSettings
from scrl.training.crediting import label_note, with_drawn
from scrl.training.guard import NEARLY_ALL, alarms, new_alarms, why_no_signal
from scrl.training.run_folder import RunFolder
from scrl.training.state import State
from scrl.training.stream import QuestionStream
from scrl.user_code import source_digest


@dataclass(eq=False)
class BaseRun:
    """What a run starts with, and its current state."""

    config: RunConfig
    folder: RunFolder
    listener: Listener
    rule: CreditRule
    language_model: LanguageModel
    stream: QuestionStream
    held_out: Sequence[Question]
    state: State

    def log_step(self, line: dict[str, Any], groups_B: Sequence[CreditedGroup], notes: Sequence[str] = ()) -> None:
        """Record a step: its completions, its numbers, and what the listener is told."""
        self.folder.append("rollouts.jsonl", [row for group in groups_B for row in rollout_lines(group)])
        self.folder.append("metrics.jsonl", [line])
        if line["step"] == 0 and line["no_answer_share"] > NEARLY_ALL:
            notes = (*notes, why_no_signal([line], self.config))
        is_new = line["step"] == 0 and self.config.label_votes == "present"
        if is_new and "elsewhere" in self.rule.needs and "stock_share" not in line:
            notes = (*notes, few_others(len(self.stream.questions) - 1))
        for note in notes:
            self.listener.note(note)
        self.listener.step(line, describe(groups_B, self.rule.method))

    @property
    def measured(self) -> dict[str, Sequence[Question]]:
        """The questions that evaluations ask: those trained on, and those held out."""
        return {"stream": self.stream.questions[: self.config.evaluation.questions], "held-out": self.held_out}

    def evaluation_records(
        self, sample: Callable[[str, Sequence[Question], SamplingSettings], list[Sampled]]
    ) -> list[dict[str, Any]]:
        """One record for the questions trained on, and one for those held out, where there are some."""
        config, sampling, records = self.config, self.config.evaluation_sampling, []
        how = (sampling, (config.evaluation.completions,), config.seed, config.reader, config.prompt)
        for name, questions in self.measured.items():
            if questions:
                answered_Q = [(each.question, each.group) for each in sample(name, questions, sampling)]
                conditions = Conditions(name, config.model, *how, self.state.step)
                records.append(evaluate(answered_Q, self.rule, conditions))
        return records

    def draw_votes_if_due(
        self, sample: Callable[[Sequence[Question], str], list[Sampled]], at_once: int
    ) -> dict[str, float]:
        """Draw the votes that decide (`label_votes`): before the first step, and for rounds before every pass.

        Then every question without a label votes. `sample` draws the votes of some questions, `at_once` at a time;
        the name it is given, which seeds them, is that of the pass. Metrics of it; empty if no votes were due.
        """
        config, state = self.config, self.state
        this_pass = state.step // self.stream.steps_per_epoch
        questions = [question for question in self.stream.questions if question.id not in state.label_votes.labels]
        is_due = bool(questions) and config.votes_due(state.votes_pass, this_pass)
        metrics = self._draw_votes(questions, this_pass, sample, at_once) if is_due else {}
        if config.votes_file is not None and not state.label_votes.votes:
            from scrl.lab.stored_groups import first_visits

            asked = [question.id for question in self.stream.questions]
            self._give_labels(first_visits(config.votes_file, self.rule, asked))
        return metrics

    def _draw_votes(
        self,
        questions: Sequence[Question],
        this_pass: int,
        sample: Callable[[Sequence[Question], str], list[Sampled]],
        at_once: int,
    ) -> dict[str, float]:
        """Draw votes on these questions; labels follow from them, unless a file decides."""
        config, state, rule, start = self.config, self.state, self.rule, time.perf_counter()
        self.listener.note(f"{config.votes_per_question} votes on each of {counted(len(questions), 'question')}")
        name, drawn, tokens = f"votes-{this_pass}" if this_pass else "reference", list[Evidence](), 0
        for first in range(0, len(questions), at_once):  # not all at once: they would not fit into memory
            for sampled in sample(questions[first : first + at_once], name):
                tokens += sum(each.tokens_drawn for each in sampled.samples_G)
                drawn.append(rule.evidence(sampled.group))
            self.listener.progress("votes", len(drawn), len(questions))
        if "reference_share" in rule.needs and state.votes_pass is None:
            state.reference_shares = {each.group.question_id: max(each.tally.shares_K, default=0.0) for each in drawn}
        if config.label_votes in ("start", "round"):
            self._give_labels(drawn)
            state.first_answers = {
                each.group.question_id: majority_positive(each.tally, first_seen_wins=False) for each in drawn
            } | state.first_answers
        state.votes_pass = this_pass
        votes, seconds = config.votes_per_question * len(questions), time.perf_counter() - start
        return {"votes_drawn": votes, "tokens_votes": tokens, "seconds_votes": seconds}

    def _give_labels(self, voted: Iterable[Evidence]) -> None:
        """Label questions by these votes, and say how many have a label now."""
        state, rule, by_id = self.state, self.rule, {question.id: question for question in self.stream.questions}
        known = [
            replace(
                each,
                truth=truth_for(rule, by_id[each.group.question_id], each.classes),
                reference_share=state.reference_shares.get(each.group.question_id),
            )
            for each in voted
        ]
        state.label_votes = with_drawn(state.label_votes, known, rule)
        if note := label_note(state.label_votes, rule, len(by_id)):
            self.listener.note(note)

    @property
    def deciding_votes(self) -> LabelVotes | None:
        """The votes that decide; None: those of the step's own completions."""
        return None if self.config.label_votes == "present" else self.state.label_votes

    @property
    def teaching(self) -> QuestionStream:
        """The questions to sample: those with a label where all others would teach nothing, else all."""
        votes = self.deciding_votes
        if votes is None or not self.rule.is_silent_without_label:
            return self.stream
        return self.stream.only(votes.labels, (self.state.votes_pass or 0) * self.stream.steps_per_epoch)

    @property
    def stop_reasons(self) -> list[str]:
        """Why the guard stops the run at its current state; empty if it does not."""
        return alarms(self.state.history, self.config.guard) if self.config.guard.mode == "stop" else []

    def refuse_if_ended(self) -> None:
        """Refuse to resume a run that the guard ended, or that has done all its steps."""
        out, step = self.folder.path, self.state.step
        if self.stop_reasons:
            raise InputError(f"{out}: the guard ended this run after step {step}; its checkpoints are in {out}")
        if step >= self.config.steps:
            more = f"for more, raise steps in {out}/config.yaml, or start from it with --model {self.folder.last}"
            raise InputError(f"{out}: has done all its {self.config.steps} steps; {more}")

    @property
    def standing(self) -> Standing:
        """What a checkpoint made now says about the run."""
        return Standing(self.state.step, tuple(self.stop_reasons))

    def guard_notes(self) -> list[str]:
        """What the guard says after the last step and did not say after the one before."""
        state = self.state
        problems = new_alarms(state.history, self.config.guard)
        notes = [f"guard, after step {state.step}: {'; '.join(problems)}"] if problems else []
        if self.stop_reasons:
            best = f"the best checkpoint is that of step {state.best_step}" if state.best_step else "no best checkpoint"
            notes.append(f"the guard ends the run after step {state.step}; {best}")
        return notes


def rollout_lines(group: CreditedGroup) -> list[Mapping[str, Any]]:
    """The completions of one question, with what they earned."""
    sampled, credit = group.sampled, group.credit
    golds_G = gold_fields(sampled.question, group.classes)
    return [
        rollout_fields(sampled.question, sampled.step, number, sample)
        | {
            "answer_class": key,
            "label": credit.labels.label_of(key),
            "reward": float(credit.rewards[number]),
            "advantage": float(credit.advantages[number]) if number in credit.trained else None,
        }
        | golds_G[number]
        for number, (sample, key) in enumerate(zip(sampled.samples_G, credit.tally.completion_keys, strict=True))
    ]


def describe(groups_B: Sequence[CreditedGroup], method: Method) -> str:
    """`5 of 8 questions had a label, 2 unanimous, 3 abstained; 1 taught nothing`; `8 questions, …` without labels."""
    credit_B = [group.credit for group in groups_B]
    labelled = sum(credit.labels.positive is not None for credit in credit_B)
    silent = sum(not has_signal(credit) for credit in credit_B)
    unanimous = f"{sum(map(is_unanimous, credit_B))} unanimous"
    if not method.has_labels:
        return f"{counted(len(credit_B), 'question')}, {unanimous}; {silent} taught nothing"
    words = f"{labelled} of {counted(len(credit_B), 'question')} had a label, {unanimous}, "
    return words + f"{len(credit_B) - labelled} abstained; {silent} taught nothing"


def outcome_notes(folder: RunFolder, say: Callable[[str], None]) -> Iterator[str]:
    """What a run says at its end: the vote before and after on each set of questions measured, and what it took."""
    evaluations, steps = folder.lines("evaluations.jsonl", say), folder.lines("metrics.jsonl", say)
    end = steps[-1]["step"] + 1 if steps else 0
    for name, words in SETS.items():
        records = [record for record in evaluations if record["benchmark"] == name and record["step"] in (0, end)]
        if len(records) > 1 and _are_alike(records[0], records[-1]):
            yield f"{words}: {_change(records[0], records[-1])}"
    if steps:
        tokens = sum(step["tokens"] + step.get("tokens_votes", 0) for step in steps)
        seconds = sum(value for step in steps for key, value in step.items() if key.startswith("seconds_"))
        saved = sum(step.get("tokens_saved", 0) for step in steps)
        less = f"; questions that teach nothing would have taken {saved:,.0f} more" if saved else ""
        yield f"training took {tokens:,} sampled tokens and {duration(seconds)}{less}"


def _are_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two evaluations asked the same questions in the same way; a resumed run may measure in another."""
    is_same_way = EvaluationProtocol.of(one) == EvaluationProtocol.of(other)
    return is_same_way and one.get("questions_digest") == other.get("questions_digest")


def _change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The vote before and after; without gold, how many questions have another answer now."""
    if after["answered"] < before["answered"] / 2:
        answered = f"{after['answered']:.0%} of the completions have an answer, {before['answered']:.0%} had"
        return f"WARNING: {answered}; the model is broken, so use the start model's answers"
    vote = f"maj@{before['samples']}"
    if vote in before and vote in after:
        which = f"the vote of {before['samples']} completions"
        words = f"{which} is right on {after[vote]:.1%}; the start model's was on {before[vote]:.1%}"
        worse = ". WARNING: that is worse; use the start model's answers (start_answer in answers.csv)"
        return words if after[vote] >= before[vote] else words + worse
    pairs = [(before["answers"][name]["votes"], after["answers"][name]["votes"]) for name in before["answers"]]
    changed = sum([vote[0] for vote in one[:1]] != [vote[0] for vote in two[:1]] for one, two in pairs)
    agree = f"{after['agreement']:.0%} of the completions agree with it, {before['agreement']:.0%} did"
    changed_on = f"the most frequent answer has changed on {changed} of {counted(len(pairs), 'question')}"
    return f"{changed_on}; {agree} (agreement is not correctness)"


def prepare(config: RunConfig, folder: RunFolder, listener: Listener, compute: ComputeSettings) -> BaseRun:
    """Load questions and model; `compute` says where the model goes."""
    config, rule = config.resolved(), config.rule()
    is_begun = (folder.path / "config.yaml").is_file()  # then its checkpoint has the votes
    if config.votes_file is not None and not config.votes_file.exists() and not is_begun:
        near = did_you_mean(config.label_votes, WHOSE)
        raise InputError(f"label_votes: there is no file of completions {config.label_votes}.{near}")
    loaded = load_sets(config)
    # For what libraries draw; our own seeds are derived from names instead (scrl.seeds).
    random.seed(config.seed)
    np.random.seed(config.seed % 2**32)
    torch.manual_seed(config.seed)
    model = load_model(config.model, compute, lora=config.lora, trust_remote_code=config.trust_remote_code)
    check_savable(config.model, model.model)
    (questions, held_out), notes = usable_sets(loaded, config, model.tokenizer, model.model.config)
    reader = config.reader.removeprefix(SOUND).removeprefix("regex:")
    stream = QuestionStream(questions, config.questions_per_step, config.seed, config.drop_last)
    state = State(
        questions=_fingerprint(questions),
        held_out=_fingerprint(held_out),
        model=model_identity(model),
        user_code=source_digest((config.method, reader, config.compute.sampler)),
        settings=config.model_dump(mode="json"),
    )
    for note in notes:
        listener.note(note)
    return BaseRun(config, folder, listener, rule, model, stream, held_out, state)


def load_sets(config: RunConfig) -> tuple[LoadedQuestions, LoadedQuestions | None]:
    """The questions, if the method can be trained on them, and those held out."""
    loaded, held_out, rule = config.load_questions(), config.load_held_out(), config.rule()
    require_gold(rule, loaded.questions)
    if "elsewhere" in rule.needs:
        require_others([question.id for question in loaded.questions], rule.method.name)
    return loaded, held_out


def usable_sets(
    sets: Iterable[LoadedQuestions | None], config: RunConfig, tokenizer: Any, model_config: Any
) -> tuple[list[list[Question]], list[str]]:
    """Of each set the questions that can be asked, and notes on how they are."""
    asking = (tokenizer, config.prompt, model_config, config.sampling.max_tokens)
    found = [usable_questions(each.questions, *asking) if each else ([], []) for each in sets]
    return [kept for kept, _ in found], list(dict.fromkeys(note for _, notes in found for note in notes))


def _fingerprint(questions: Sequence[Question]) -> str:
    """The same for the same questions, whatever is known about their answers; empty where there are none."""
    texts = "\x1f".join(part for question in questions for part in (question.id, question.text))
    return hashlib.blake2b(texts.encode(), digest_size=16).hexdigest() if questions else ""
