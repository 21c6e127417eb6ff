"""Help of a subcommand: its usage, its arguments and its options."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand


class Subcommand(TyperCommand):
    """A subcommand, whose help names arguments as a user writes them, without types."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """[OPTIONS] and the arguments: RUN, [RUN], FOLDER..."""
        pieces = ["[OPTIONS]"]
        for parameter in self.params:
            if isinstance(parameter, TyperArgument):
                pieces.append(_in_usage(parameter))
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments and the options, each with its help."""
        arguments = []
        options = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if isinstance(parameter, TyperArgument):
                arguments.append((_name_of(parameter), record[1]))
            else:
                options.append(record)
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        with formatter.section("Options"):
            formatter.write_dl(options)


def _name_of(argument: TyperArgument) -> str:
    """An argument's name for users."""
    name = argument.metavar or str(argument.name).upper()
    return name.removesuffix("...")


def _in_usage(argument: TyperArgument) -> str:
    """An argument in a line of usage; a name with a space is one of several arguments."""
    name = _name_of(argument)
    if " " in name:
        return name
    text = name if argument.required else f"[{name}]"
    if argument.nargs != 1:
        text += "..."
    return text
