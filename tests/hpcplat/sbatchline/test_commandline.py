"""sbatch's command line, read as getopt_long reads it."""

from __future__ import annotations

import pytest

from hpcplat.sbatchline.commandline import parse, value_of
from hpcplat.sbatchline.directives import parse_script
from hpcplat.sbatchline.options import KNOWN, parse_help
from hpcplat.sbatchline.precedence import from_environment, request


@pytest.mark.parametrize(
    ("words", "pairs"),
    [
        (["-N", "2", "x.sh"], [("nodes", "2")]),
        (["-N2", "x.sh"], [("nodes", "2")]),
        (["--nodes", "2", "x.sh"], [("nodes", "2")]),
        (["--nodes=2", "x.sh"], [("nodes", "2")]),
        (["--nodel=n1", "x.sh"], [("nodelist", "n1")]),
        (["--nice", "x.sh"], [("nice", None)]),
        (["--nice=5", "x.sh"], [("nice", "5")]),
        (["-k", "x.sh"], [("no-kill", None)]),
        (["-koff", "x.sh"], [("no-kill", "off")]),
        (["-HvN2", "x.sh"], [("hold", None), ("verbose", None), ("nodes", "2")]),
        (["-J", "-odd", "x.sh"], [("job-name", "-odd")]),
        (["--job-name=", "x.sh"], [("job-name", "")]),
        (["--tasks-per-node=4", "x.sh"], [("ntasks-per-node", "4")]),
        (["--requeue", "x.sh"], [("requeue", None)]),
        (["--", "x.sh"], []),
    ],
)
def test_options(words: list[str], pairs: list[tuple[str, str | None]]) -> None:
    line = parse(words)
    assert [(given.name, given.value) for given in line.components[0]] == pairs
    assert line.script == "x.sh"


def test_the_script_ends_the_options() -> None:
    line = parse(["-H", "x.sh", "-N", "2", "--", "y"])
    assert line.arguments == ("-N", "2", "--", "y")
    assert value_of(line.components[0], "nodes") is None


def test_an_ambiguous_abbreviation_and_a_stranger_are_left_alone() -> None:
    line = parse(["--mail=x", "--container-image=a.sqsh", "-Z", "x.sh"])
    assert line.strangers == ("mail", "container-image", "Z")
    assert line.script == "x.sh"


def test_plugin_options_are_learnt_from_the_help() -> None:
    text = (
        "Options provided by plugins:\n"
        "      --container-image=[USER@][REGISTRY#]IMAGE\n"
        "                              [pyxis] the image to use\n"
        "      --container-mount-home  [pyxis] bind mount the home\n"
        "      --container-save[=PATH] [pyxis] save\n"
        "  -z, --zone=name             zone\n"
    )
    options = KNOWN.with_plugins(text)
    line = parse(
        ["--container-image", "a", "--container-mount-home", "-zq", "x.sh"], options
    )
    assert line.strangers == ()
    assert [given.value for given in line.components[0]] == ["a", None, "q"]
    assert line.script == "x.sh"


def test_the_help_of_sbatch_is_read_with_its_values() -> None:
    text = "  -N, --nodes=N    x\n      --requeue[=expedite]  y\n  -H, --hold   z\n"
    found = {option.name: option for option in parse_help(text)}
    for name in ("nodes", "requeue", "hold"):
        assert found[name].takes is KNOWN.by_name[name].takes
        assert found[name].short == KNOWN.by_name[name].short


def test_components_of_a_het_job() -> None:
    line = parse(["-N1", ":", "-N2", "--gpus=4", "x.sh", "a"])
    assert [value_of(c, "nodes") for c in line.components] == ["1", "2"]
    assert (line.script, line.arguments) == ("x.sh", ("a",))


def test_command_line_over_environment_over_script() -> None:
    script = parse_script("#SBATCH -t 1 -p a -A one\n")
    environment = from_environment({"SBATCH_TIMELIMIT": "2", "SBATCH_PARTITION": "b"})
    asked = request(parse(["-t3", "x.sh"]), script, environment)
    assert [asked.value(n) for n in ("time", "partition", "account")] == [
        "3",
        "b",
        "one",
    ]


def test_of_exclusive_options_the_last_source_wins() -> None:
    script = parse_script("#SBATCH --mem=4G --requeue\n")
    asked = request(parse(["--mem-per-cpu=1G", "--no-requeue", "x"]), script, ())
    assert not asked.has("mem")
    assert not asked.has("requeue")
    assert asked.value("mem-per-cpu") == "1G"


def test_what_later_components_inherit() -> None:
    asked = request(parse(["-A", "one", "-N2", ":", "-n4", "x.sh"]), (), ())
    second = asked.components[1]
    assert value_of(second, "account") == "one"
    assert value_of(second, "nodes") is None


def test_the_last_value_counts() -> None:
    asked = request(parse(["-N1", "-N2", "x.sh"]), (), ())
    assert asked.value("nodes") == "2"


def test_no_short_name_stands_twice() -> None:
    shorts = [option.short for option in KNOWN.rows if option.short]
    assert len(shorts) == len(set(shorts))


def test_a_flag_variable_counts_whatever_it_holds() -> None:
    (given,) = from_environment({"SBATCH_REQUEUE": "1"})
    assert (given.name, given.value) == ("requeue", "1")
    (given,) = from_environment({"SBATCH_WAIT": "1"})
    assert given.word() == "--wait"
