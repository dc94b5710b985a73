"""perdure demo: the tour."""

import click


@click.command()
def demo() -> None:
    """Push items through a misbehaving upstream and account for each of them."""
