"""`scrl evidence`: the campaign on real models, its runs and its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scrl.errors import ConfigError, InputError, TrainingError
from scrl.recipes.evidence.campaign import CAMPAIGNS, Code, carry_out, carry_out_all, find_run, missing_runs
from scrl.recipes.evidence.tables import draw_picture, evidence_markdown, progress


def evidence(
    *,
    results: Path = Path("results"),
    run: Annotated[bool, Parameter(negative=())] = False,
    only: str | None = None,
    work: Path | None = None,
    jobs: int = 1,
    source: Path | None = None,
    commit: str | None = None,
    picture: Path | None = None,
) -> None:
    """Print the tables of the campaign on real models from its stored results; or run it.

    Example: scrl evidence --picture docs/evidence.svg

    Parameters
    ----------
    results
        Folder with the stored results of each run.
    run
        Run what has no results yet; needs a GPU and --work.
    only
        Run only this one, for instance amc-1.5b/contrast-2.
    work
        Folder with models/ and data/ as the settings of the campaign name them.
    jobs
        Runs side by side on one GPU; two runs of a 1.5B model share one of 141 GB.
    source
        Make the runs with the code in this folder, for instance src of a checkout of the campaign's commit.
    commit
        Its commit, if the folder is not a checkout.
    picture
        Also draw the picture of campaign A into this .svg file.
    """
    if (run or only) and work is None:
        raise ConfigError("--work: name the folder with models/ and data/ for the runs")
    if only is not None and work is not None:
        carry_out(find_run(only), work, results, Code(source, commit))
        return
    if run and work is not None:
        ended = carry_out_all(missing_runs(results), work, results, Code(source, commit), jobs)
        failed = [each.name for each, code in ended if code]
        if failed:
            raise TrainingError(f"did not end well: {', '.join(failed)}; their messages are above")
    if not results.is_dir():
        raise InputError(f"{results}: there is no such folder; name the one with the campaign's results by --results")
    for campaign in CAMPAIGNS:
        if (results / campaign).is_dir():
            print(f"## {campaign}\n\n{evidence_markdown(results, campaign)}\n")
    print(progress(results))
    if picture is not None:
        draw_picture(results, CAMPAIGNS[0], picture)
        print(f"wrote {picture}")
