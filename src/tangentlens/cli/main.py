"""From the words on the command line to an exit status."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module

import tyro

from tangentlens.cli.commands import COMMANDS, Command
from tangentlens.errors import BadInput, exit_status
from tangentlens.record.reason import is_of_the_store, reason

DESCRIPTION = """What a PyTorch network has learned, read through its exact tangent kernels.

Exit status: 0 fine, 2 bad input, 3 refused for memory, 4 a claim outside its tolerance."""


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status; an error is one message on stderr, a traceback only with --debug."""
    settings = parsed(sys.argv[1:] if words is None else words)
    command = next(name for name, kind in COMMANDS.items() if isinstance(settings, kind))
    try:
        return int(import_module(f"tangentlens.cli.{command}").run(settings) or 0)
    except KeyboardInterrupt:
        print(f"tangentlens {command}: stopped by the keyboard", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `tangentlens ... | head` closed the pipe: nobody is left to read
        sys.stderr.close()
        return 0
    except Exception as error:
        damaged = is_of_the_store(error)  # what a run holds is read where it is used: a damaged one is met anywhere
        status = BadInput.exit_status if damaged else exit_status(error)
        if settings.debug or status is None:  # an error nobody foresaw needs its traceback to be mended
            traceback.print_exc()
        elif damaged:
            words = f"expected a run whose files are whole, got one that cannot be read ({reason(error)})"
            print(f"tangentlens {command}: {words}; copy it again from where it was made", file=sys.stderr)
        else:
            print(f"tangentlens {command}: {error}", file=sys.stderr)
        return 1 if status is None else status


def parsed(words: Sequence[str]) -> Command:
    """The settings of the command that was asked for; wrong words end the program with exit status 2."""
    settings: Command = tyro.extras.subcommand_cli_from_dict(
        dict[str, Callable[..., Command]](COMMANDS),
        prog="tangentlens",
        description=DESCRIPTION,
        args=list(words) or ["--help"],
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return settings
