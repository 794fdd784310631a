"""The judge: real worker processes, time limits, threads, no main guard."""

import os
import subprocess
import sys
import threading
import time

import pytest

from scrl.answers import judge as judge_module
from scrl.answers.classes import classify, find_class, same_answer
from scrl.answers.judge import MathVerifyJudge, NoJudge
from scrl.errors import JudgeError

# sympy does not come back from these in reasonable time; canonical forms do not read them.
HOSTILE = [rf"\sum_{{k=1}}^{{10^{{{n}}}}} \frac{{\sin(k!)}}{{k^{{{n}}}}}" for n in range(6, 33)]


def test_the_judge_merges_what_forms_leave_open_and_nothing_else(judge):
    verdicts = judge.compare([(r"\frac{x^2-1}{x-1}", "x+1"), (r"\sin x", r"\cos x")])
    assert verdicts.equal == {(r"\frac{x^2-1}{x-1}", "x+1")}
    assert verdicts.undecided == frozenset()


def test_verdicts_are_remembered(judge):
    pair = (r"1-\sin^2 x", r"\cos^2 x")  # verdicts name the smaller text first
    judge.compare([pair])
    calls = judge.num_calls
    assert judge.compare([pair[::-1]]).equal == {pair}
    assert judge.num_calls == calls


def test_twenty_seven_hostile_answers_cost_seconds_and_are_counted():
    """Each pair would run for minutes; the group's limit ends that, and what is undecided is reported."""
    judge = MathVerifyJudge(seconds_per_answer=0.3, seconds_per_group=1.5)
    start = time.monotonic()
    classes = classify([*HOSTILE, "5", "5.0"], judge=judge)
    assert time.monotonic() - start < 60  # a bound on minutes, not a timing
    assert classes.keys_K[0] == "5"
    assert len(classes.keys_K) == len(HOSTILE) + 1  # undecided means different
    assert classes.undecided_pairs > 0
    judge.close()


def test_a_pair_that_timed_out_is_not_tried_again():
    judge = MathVerifyJudge(seconds_per_answer=0.3, seconds_per_group=5)
    pair = (HOSTILE[0], HOSTILE[1])
    assert judge.compare([pair]).undecided
    calls = judge.num_calls
    assert judge.compare([pair]).undecided
    assert judge.num_calls == calls
    judge.close()


def test_a_pair_that_was_never_tried_gets_its_chance_later(judge):
    hasty = MathVerifyJudge(seconds_per_group=0)
    assert hasty.compare([(r"\log_2 8", "3")]).undecided
    hasty.seconds_per_group = 60
    assert hasty.compare([(r"\log_2 8", "3")]).equal
    hasty.close()


def test_a_worker_killed_over_one_answer_still_serves_the_next():
    judge = MathVerifyJudge(seconds_per_answer=0.5, seconds_per_group=30, workers=1)
    assert judge.compare([(HOSTILE[0], HOSTILE[1])]).undecided
    judge.seconds_per_answer = 30
    assert same_answer(r"\sin^2 x + \cos^2 x", "1", judge=judge)
    judge.close()


def test_the_judge_works_from_many_threads(judge):
    found = []

    def work(n):
        found.append(same_answer(rf"\log_2 {2**n}", str(n), judge=judge))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8


def test_the_judge_works_in_a_plain_script_without_a_main_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing as mp\n"
        "mp.set_start_method('spawn')\n"  # where fork does not exist
        "import scrl\n"
        r"print(scrl.same_answer(r'\frac{x^2-1}{x-1}', 'x+1'))"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("True", "", 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_uses_workers_of_its_own(judge):
    judge.compare([(r"\sin x", r"\sin(x)")])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        verdict = judge.compare([(r"\log_2 4096", "12")]).equal
        judge.close()
        os.write(writing, b"yes" if verdict else b"no")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 10) == b"yes"
    os.close(reading)
    os.close(writing)
    assert judge.compare([(r"\log_2 2048", "11")]).equal


def test_without_a_judge_open_pairs_stay_different():
    assert not same_answer(r"\log_2 8", "3", judge=NoJudge())


def test_a_judge_that_cannot_start_says_so(monkeypatch, tmp_path):
    broken = tmp_path / "worker.py"
    broken.write_text("raise SystemExit('math-verify is missing')")
    monkeypatch.setattr(judge_module, "_WORKER", broken)
    with pytest.raises(JudgeError, match="math-verify is missing"):
        MathVerifyJudge().compare([("a", "b")])


def test_a_worker_that_dies_leaves_its_pair_undecided(monkeypatch, tmp_path):
    dying = tmp_path / "worker.py"
    dying.write_text("print('\"ready\"', flush=True)\ninput()\nraise SystemExit(1)")
    monkeypatch.setattr(judge_module, "_WORKER", dying)
    judge = MathVerifyJudge(workers=1)
    assert judge.compare([("a", "b")]).undecided == {("a", "b")}
    judge.close()


def test_a_worker_that_died_while_idle_is_replaced():
    """As when Ctrl-C in a terminal reaches the whole process group: the next answer is not to blame."""
    judge = MathVerifyJudge(workers=1, seconds_per_answer=60, seconds_per_group=300)
    assert judge.compare([(r"\log_2 8", "3")]).equal
    (worker,) = judge._slots.queue
    worker._process.kill()
    worker._process.wait()
    assert judge.compare([(r"\log_2 16", "4")]).equal
    judge.close()


def test_a_worker_whose_pipe_is_closed_leaves_the_pair_undecided(monkeypatch, tmp_path):
    deaf = tmp_path / "worker.py"
    deaf.write_text("import os, time\nprint('\"ready\"', flush=True)\nos.close(0)\ntime.sleep(30)")
    monkeypatch.setattr(judge_module, "_WORKER", deaf)
    judge = MathVerifyJudge(workers=1)
    assert judge.compare([("a", "b")]).undecided == {("a", "b")}
    judge.close()


def test_an_interrupted_question_does_not_shift_later_verdicts(monkeypatch):
    judge = MathVerifyJudge(workers=1, seconds_per_answer=60, seconds_per_group=300)
    judge.compare([(r"\log_2 8", "3")])
    reply = judge_module._Worker._reply

    def interrupted(self, seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(judge_module._Worker, "_reply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        judge.compare([(r"\log_2 32", "5")])
    monkeypatch.setattr(judge_module._Worker, "_reply", reply)
    verdicts = judge.compare([(r"\log_2 32", "6"), (r"\log_2 64", "6"), (r"\log_2 64", "7")])
    assert verdicts.equal == {("6", r"\log_2 64")}
    judge.close()


def test_closing_does_not_strand_those_who_wait():
    judge = MathVerifyJudge(workers=1, seconds_per_answer=60, seconds_per_group=300)
    found = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(same_answer(rf"\log_2 {2**n}", str(n), judge=judge)))
        for n in range(2, 6)
    ]
    for thread in threads:
        thread.start()
        judge.close()
    for thread in threads:
        thread.join(timeout=120)
    assert found == [True] * 4
    assert judge._slots.qsize() == 1
    judge.close()


def test_a_plain_number_is_not_given_up_for_hostile_company():
    judge = MathVerifyJudge(seconds_per_answer=1.0, seconds_per_group=300)
    judge.compare([(r"\tan(\arctan 6)", "6")])  # a worker that is warm
    judge._known.clear()
    classes = classify(["6", r"\tan(\arctan 6)", HOSTILE[0], HOSTILE[1]], judge=judge)
    assert classes.class_of_G[0] == classes.class_of_G[1]
    judge.close()


def test_a_group_uses_up_few_workers(monkeypatch, tmp_path):
    started = tmp_path / "started"
    dying = tmp_path / "worker.py"
    dying.write_text(
        f"open({str(started)!r}, 'a').write('x')\nprint('\"ready\"', flush=True)\ninput()\nraise SystemExit(1)"
    )
    monkeypatch.setattr(judge_module, "_WORKER", dying)
    judge = MathVerifyJudge(workers=1)
    pairs = [(f"a{n}", f"b{n}") for n in range(30)]
    assert len(judge.compare(pairs).undecided) == 30
    assert len(started.read_text()) == 6
    judge.close()


def test_memory_is_bounded():
    judge = MathVerifyJudge(memory=2)
    for n in range(2, 6):
        judge.compare([(rf"\log_2 {2**n}", str(n))])
    assert len(judge._known) == 2
    judge.close()


def test_gold_is_graded_by_the_same_relation(judge):
    classes = classify([r"\sin 2x", r"2\sin x\cos x", "1"], judge=judge)
    assert len(classes.keys_K) == 2
    index, undecided = find_class(classes, r"2\cos x \sin x", judge=judge)
    assert (index, undecided) == (classes.class_of_G[0], 0)
    assert find_class(classes, r"\cos 2x", judge=judge) == (None, 0)
    assert find_class(classes, "", judge=judge) == (None, 0)
