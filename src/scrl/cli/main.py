"""The `scrl` command: parse, call, print.

Exit codes: 0 success, 2 bad input or usage, 3 a run that the guard stopped, 130 Ctrl-C or SIGTERM, 1 any other failure.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from io import StringIO, TextIOWrapper

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter
from rich.console import Console
from rich.text import Text

from scrl import __version__
from scrl.cli.settings import HELP
from scrl.cli.terminal import make_printable
from scrl.errors import CollapseError, InputError, ScrlError, is_panic
from scrl.training.interrupts import stop_on_sigterm

app = App(
    name="scrl",
    help="Test-time reinforcement learning of language models on questions without answers.",
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(negative_iterable=()),  # no --empty-seeds beside --seeds
)
COMMANDS = (
    "demo train plan evaluate answers export compare rollouts label audit sweep methods report reproduce doctor"
).split()
for name in COMMANDS:  # each is the function of this name in the file of this name
    app.command(getattr(import_module(f"scrl.cli.{name}"), name), help_formatter=HELP.get(name))


def main(arguments: Sequence[str] | None = None) -> int:
    sys.stdout, sys.stderr = sys.stdout or StringIO(), sys.stderr or StringIO()  # None if they were closed before
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without arrows must not end a run
    make_printable()
    errors = Console(stderr=True, soft_wrap=True)
    try:
        with stop_on_sigterm():
            app(
                sys.argv[1:] if arguments is None else arguments,
                exit_on_error=False,
                print_error=False,
                result_action="return_value",
            )
    except (InputError, CycloptsError) as error:
        errors.print(Text(f"error: {_in_words(error)}"))
        return 2
    except CollapseError as stop:
        errors.print(Text(f"stopped: {stop}"))
        return 3
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ScrlError, OSError) as error:
        errors.print(Text(f"failed: {error}"))
        return 1
    except KeyboardInterrupt:
        if arguments is None:  # the process ends here: another one would only print a traceback
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        errors.print("stopped; no file was left half-written")
        return 130
    except BaseException as error:
        if not is_panic(error):
            raise
        errors.print(Text(f"failed: {error}; is the model's tokenizer.json damaged?"))
        return 1
    return 0


def _in_words(error: InputError | CycloptsError) -> str:
    """An error and its fix; of an argument that is missing `scrl export: give --out PATH; see scrl export --help`."""
    if isinstance(error, InputError):
        return str(error)
    if not isinstance(error, MissingArgumentError) or error.argument is None:
        return f"{error}\nRun 'scrl --help' or 'scrl COMMAND --help' to see what is possible."
    command = " ".join(("scrl", *(error.command_chain or ())))
    name, kind = error.argument.name, getattr(error.argument.hint, "__name__", "value").upper()
    return f"{command}: give {f'{name} {kind}' if name.startswith('-') else name}; see {command} --help"
