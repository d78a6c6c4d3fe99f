"""`dovetail completion SHELL`: a script that completes commands and options, made from the parsers themselves."""

import argparse
import importlib
from dataclasses import dataclass

from dovetail.cli.output import print_bytes
from dovetail.model.settings import Profile

SHELLS = ("bash", "zsh", "fish")
_EPILOG = """\
examples:
  source <(dovetail completion bash)                    in ~/.bashrc
  source <(dovetail completion zsh)                     in ~/.zshrc
  dovetail completion fish > ~/.config/fish/completions/dovetail.fish

`kubectl dovetail` completes too, where kubectl 1.26 or newer finds a program
called kubectl_complete-dovetail on the path; `dovetail completion kubectl`
prints one.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "completion",
        help="print a completion script for bash, zsh or fish",
        description="Prints a script that completes commands, options and their values.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", metavar="SHELL", choices=(*SHELLS, "kubectl"), help="bash, zsh, fish or kubectl")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print_bytes(script(args.shell).encode())
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of a command: its words, its line of help, and the values that it takes (none: a flag or free text)."""

    words: tuple[str, ...]
    summary: str
    values: tuple[str, ...]
    takes_value: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A command with its options."""

    name: str
    summary: str
    options: tuple[Option, ...]


def commands() -> tuple[Described, ...]:
    """Read every command's parser."""
    from dovetail.cli.main import COMMANDS, Parser

    found = []
    for entry in COMMANDS:
        holder = Parser(prog="dovetail").add_subparsers(parser_class=Parser)
        importlib.import_module(f"dovetail.cli.{entry.module}").register(holder)
        parser = holder.choices[entry.name]
        options = tuple(_option(action) for action in parser._actions if action.option_strings)
        found.append(Described(name=entry.name, summary=entry.summary, options=options))
    return tuple(found)


def _option(action: argparse.Action) -> Option:
    values = tuple(str(value) for value in action.choices or ())
    if "--profile" in action.option_strings or "--compare" in action.option_strings:
        values = tuple(profile.value for profile in Profile)
    return Option(
        words=tuple(action.option_strings),
        summary=(action.help or "").replace("%%", "%"),
        values=values,
        takes_value=action.nargs != 0,
    )


def script(shell: str) -> str:
    """Return the script for a shell."""
    described = commands()
    made = {"bash": _bash, "zsh": _zsh, "fish": _fish, "kubectl": _kubectl}[shell](described)
    return f"{made}\n"


def _bash(described: tuple[Described, ...]) -> str:
    lines = [
        "# bash completion for dovetail; source it",
        "_dovetail() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="" each',
        '    for each in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        '        case "$each" in -*) ;; *) command="$each"; break ;; esac',
        "    done",
        '    case "$command:$before" in',
    ]
    for entry in described:
        for option in entry.options:
            if option.values:
                patterns = "|".join(f"{entry.name}:{word}" for word in option.words)
                words = " ".join(option.values)
                lines.append(f'        {patterns}) COMPREPLY=($(compgen -W "{words}" -- "$word")); return ;;')
    lines += ["    esac", '    case "$command" in']
    names = " ".join(entry.name for entry in described)
    lines.append(f'        "") COMPREPLY=($(compgen -W "{names} --help --version" -- "$word")); return ;;')
    for entry in described:
        words = " ".join(word for option in entry.options for word in option.words)
        lines.append(f'        {entry.name}) [[ "$word" == -* ]] && COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;')
    lines += ["    esac", "}", "complete -o default -F _dovetail dovetail kubectl-dovetail"]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Write a text for a single-quoted word of zsh's `_arguments`."""
    return text.replace("'", "'\\''").replace("[", "(").replace("]", ")").replace(":", "\\:")


def _zsh(described: tuple[Described, ...]) -> str:
    lines = ["#compdef dovetail kubectl-dovetail", "_dovetail() {", "    local -a commands", "    commands=("]
    lines += [f"        '{entry.name}:{_quoted(entry.summary)}'" for entry in described]
    lines += [
        "    )",
        "    if (( CURRENT == 2 )); then _describe command commands; return; fi",
        '    case "${words[2]}" in',
    ]
    for entry in described:
        lines.append(f"        {entry.name}) _arguments \\")
        for option in entry.options:
            for word in option.words:
                values = f"({' '.join(option.values)})" if option.values else "_files"
                tail = f":value:{values}" if option.takes_value else ""
                lines.append(f"            '{word}[{_quoted(option.summary)}]{tail}' \\")
        lines.append("            '*:file:_files' ;;")
    lines += ["    esac", "}", "compdef _dovetail dovetail kubectl-dovetail"]
    return "\n".join(lines)


def _fish(described: tuple[Described, ...]) -> str:
    lines = ["# fish completion for dovetail"]
    for entry in described:
        about = entry.summary.replace("'", "\\'")
        lines.append(f"complete -c dovetail -n __fish_use_subcommand -f -a {entry.name} -d '{about}'")
        for option in entry.options:
            words = [f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in option.words]
            values = f" -x -a '{' '.join(option.values)}'" if option.values else " -r" if option.takes_value else ""
            summary = option.summary.replace("'", "\\'")
            seen = f"complete -c dovetail -n '__fish_seen_subcommand_from {entry.name}'"
            lines.append(f"{seen} {' '.join(words)}{values} -d '{summary}'")
    return "\n".join(lines)


def _kubectl(described: tuple[Described, ...]) -> str:
    """Return a program that kubectl asks for completions: words one per line, then `:4` (no files)."""
    lines = ["#!/bin/sh", "# kubectl_complete-dovetail: put it on the path, executable", 'case "$1" in']
    lines += [
        f"    {entry.name}) cat <<'END'" + "".join(f"\n{w}" for o in entry.options for w in o.words) + "\nEND\n;;"
        for entry in described
    ]
    names = "\n".join(f"{entry.name}\t{entry.summary}" for entry in described)
    lines += [f"    *) cat <<'END'\n{names}\nEND\n;;", "esac", "echo :4"]
    return "\n".join(lines)
