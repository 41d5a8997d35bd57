"""typer: a command group with enums and a callback, training inside a command, typer.Exit with a code, result through the context; then (second half of the same app) a usage error caught by the runner."""
# PRELUDE
import enum, typer
from typer.testing import CliRunner
class O(str, enum.Enum):
    SGD = "SGD"
    Adam = "Adam"
app = typer.Typer(no_args_is_help=True)
state = {}
@app.callback()
def main(ctx: typer.Context, verbose: bool = False):
    state["sub"] = ctx.invoked_subcommand
@app.command()
def train_(lr: float = 0.1, steps: int = 2, optim: O = O.Adam, rest: list[str] = typer.Argument(None)):
    m = net(1)
    W(m)
    print(train(m, getattr(torch.optim, optim.value)(m.parameters(), lr), steps), M(m), rest)
    typer.secho("done", fg="green", err=True)
    raise typer.Exit(7)
app.registered_commands[0].name = "train"
@app.command()
def fails():
    m = net(1)
    W(m)
    m(torch.zeros(2, 3))
r = CliRunner().invoke(app, ["train", "--lr", "nope"])
print(r.exit_code, r.stdout[:60])
r = CliRunner().invoke(app, ["fails"])
print(r.exit_code, type(r.exception).__name__, r.exception)
r = CliRunner().invoke(app, ["train", "--steps", "2", "a"])
print(r.exit_code, r.output, state, R())
app()
