"""Commands of ``privplan`` in this process, as the tests call them."""

from click.testing import CliRunner

from privplan.cli import main


def privplan(*words):
    """What a command answered."""
    return CliRunner().invoke(main, [str(word) for word in words])


def verify(run, *words):
    """What the command said of a run that it did not execute again."""
    return privplan("verify", "--rounds=0", "--details", run, *words)


def answer(*words):
    """What a command that must succeed prints."""
    done = privplan(*words)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def refused(*words, code=2):
    """The one line of a command that must fail, without the name of the program."""
    done = privplan(*words)
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    [line] = done.stderr.splitlines()
    return str(line).removeprefix("privplan: ")
