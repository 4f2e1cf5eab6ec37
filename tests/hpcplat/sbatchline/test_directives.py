"""The #SBATCH lines, word by word as sbatch 22.05 to 26.05 read them."""

from __future__ import annotations

import pytest

from hpcplat.errors import InvalidError
from hpcplat.sbatchline.commandline import value_of
from hpcplat.sbatchline.directives import parse_script, split_words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--nodes=2 -n 4", ["--nodes=2", "-n", "4"]),
        ('--job-name="two words"', ["--job-name=two words"]),
        ("--job-name='two words' -H", ["--job-name=two words", "-H"]),
        (r"--comment=a\ b", ["--comment=a b"]),
        (r"--comment=\"quoted\"", ['--comment="quoted"']),
        (r"--comment='it\'s'", ["--comment=it's"]),
        ("--comment=a#b -H", ["--comment=a"]),
        ('--comment="a#b" -H', ["--comment=a#b", "-H"]),
        ("-H # held", ["-H"]),
        ('--comment "" -H', ["--comment"]),
        ("\t-H\t-v  ", ["-H", "-v"]),
        (r"-J x\y", ["-J", "xy"]),
        ("-J x\\\t-H", ["-J", "x", "-H"]),
        ("-J \\\t-H", ["-J"]),
        ("", []),
    ],
)
def test_words(line: str, words: list[str]) -> None:
    assert list(split_words(line, 1)) == words


def test_an_open_quote_names_its_line() -> None:
    with pytest.raises(InvalidError, match=r"Line 3: a quote \('\)"):
        parse_script("#!/bin/sh\n\n#SBATCH --job-name='open\n")


def test_the_first_command_ends_the_lines() -> None:
    text = "#!/bin/sh\n# note\n\n#SBATCH -N1\n  # more\n#SBATCH -n2\necho\n#SBATCH -H\n"
    assert [given.name for given in parse_script(text)[0]] == ["nodes", "ntasks"]


def test_an_option_may_find_its_value_on_the_next_line() -> None:
    (component,) = parse_script("#SBATCH --job-name\n#SBATCH tiny\n")
    assert value_of(component, "job-name") == "tiny"


def test_a_word_that_is_no_option_is_refused() -> None:
    with pytest.raises(InvalidError, match="hold 'oops'"):
        parse_script("#SBATCH -N1 oops -n2\n")


def test_het_components() -> None:
    text = "#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n#SBATCH packjob -N3\n"
    nodes = [value_of(component, "nodes") for component in parse_script(text)]
    assert nodes == ["1", "2", "3"]


def test_a_line_needs_no_space_behind_the_magic_word() -> None:
    (component,) = parse_script("#SBATCH-N1\n")
    assert value_of(component, "nodes") == "1"
