"""`fairlane completion`."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script for completion in a shell: of commands, options, names, ids.

    \b
    bash:  eval "$(fairlane completion bash)"            in ~/.bashrc
    zsh:   eval "$(fairlane completion zsh)"             in ~/.zshrc
    fish:  fairlane completion fish | source             in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    made = kind(ctx.find_root().command, {}, "fairlane", "_FAIRLANE_COMPLETE")
    click.echo(ShellComplete.source(made))  # not bash's own, which starts a bash to ask for its version
