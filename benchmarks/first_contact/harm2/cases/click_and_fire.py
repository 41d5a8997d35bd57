"""A click command (standalone mode, exits by itself) called through Fire's argv; status, output.

Source: invented, after click's and Fire's own examples
"""
# PRELUDE
import click
@click.group()
def cli(): pass
@cli.command()
@click.option("--steps", type=int, default=1)
@click.pass_context
def train_(ctx, steps):
    m = net(); click.echo(train(m, torch.optim.SGD(m.parameters(), 0.1), steps)); click.echo(ctx.command_path); ctx.exit(5)
cli.add_command(train_, "train")
import fire
class App:
    def go(self, n=1):
        m = net(); return train(m, torch.optim.SGD(m.parameters(), 0.1), n)
print(fire.Fire(App, command="go --n=2"))
cli()
