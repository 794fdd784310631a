"""The report's page in headless Chromium: its size, the first paint, and how long a moved slider takes.

    python benchmarks/page.py [--questions 500] [--completions 64] [--moves 100]

A move is timed from the slider's event to the next painted frame, and in milliseconds of CPU of the page's own thread,
which do not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from pathlib import Path

from sweep import write_rollouts

from scrl.data.completion_files import open_completions
from scrl.reporting.report import write_report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import Browser

SLIDERS = ("min_share", "min_margin", "max_negative_share", "entropy_weight")
MOVE = """new Promise((done) => {{
  const input = document.getElementById('set-{name}');
  input.value = {value};
  const start = performance.now();
  input.dispatchEvent(new Event('input'));
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
}})"""


def main() -> None:
    """Make a page, open it, move its sliders."""
    parser = argparse.ArgumentParser()
    for name, default in (("questions", 500), ("completions", 64), ("moves", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        rollouts, page = Path(folder) / "rollouts.jsonl", Path(folder) / "report.html"
        write_rollouts(rollouts, options.questions, options.completions, words=250)
        write_report([open_completions(rollouts)], page)
        print(f"{options.questions} × {options.completions} completions: {page.stat().st_size / 1e6:.1f} MB")
        browser = Browser()
        try:
            browser.look(1280)
            browser.ask("Performance.enable", timeDomain="threadTicks")
            browser.open(page)
            paint = browser.run("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
            print(f"first paint after {paint:.0f} ms")
            walls, cpus = [], []
            for _ in range(options.moves):
                before = thread_ms(browser)
                walls.append(browser.run(MOVE.format(name=rng.choice(SLIDERS), value=round(rng.random(), 3))))
                cpus.append(thread_ms(browser) - before)
        finally:
            browser.close()
    for what, values in (("to the next frame", walls), ("of the page's CPU", cpus)):
        print(f"{options.moves} moves, ms {what}: median {statistics.median(values):.0f}, worst {max(values):.0f}")


def thread_ms(browser: Browser) -> float:
    """CPU time of the page's thread so far."""
    metrics = {each["name"]: each["value"] for each in browser.ask("Performance.getMetrics")["metrics"]}
    return 1e3 * float(metrics["TaskDuration"])


if __name__ == "__main__":
    main()
