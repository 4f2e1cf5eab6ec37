from __future__ import annotations

import re
from typing import Any

import pytest

from hpcplat import processes
from hpcplat.jobs import SpecError, spec_of
from hpcplat.jobs.options import KEPT, OWN_FIELD, PASSED, arguments
from hpcplat.jobs.spec import JobSpec


def _spec(options: dict[str, Any]) -> JobSpec:
    return spec_of({"name": "x", "command": ["true"], "sbatch": options})


def test_other_options_pass_in_order() -> None:
    spec = _spec(
        {"mail-type": "END", "overcommit": True, "nice": 5, "--licenses": "a:1"}
    )
    assert arguments(spec.sbatch) == [
        "--mail-type=END",
        "--overcommit",
        "--nice=5",
        "--licenses=a:1",
    ]


@pytest.mark.parametrize(("name", "field"), OWN_FIELD.items())
def test_an_option_with_a_field_of_its_own_names_it(name: str, field: str) -> None:
    with pytest.raises(SpecError, match=f"Use {field}"):
        _spec({name: "1"})


@pytest.mark.parametrize("name", sorted(KEPT))
def test_what_is_hpcplats_to_say_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="hpcplat's to set"):
        _spec({name: "1"})


@pytest.mark.parametrize("name", ["outp", "o", "exp", "wra", "mail_typ", "no-such", ""])
def test_a_short_form_is_no_way_round(name: str) -> None:
    """sbatch takes any beginning of an option that is no other's: --outp is --output."""
    with pytest.raises(SpecError, match="not a long option"):
        _spec({name: "1"})


def test_no_option_is_in_two_lists() -> None:
    assert not PASSED & KEPT
    assert not PASSED & OWN_FIELD.keys()
    assert not KEPT & OWN_FIELD.keys()


def test_the_fields_that_are_named_exist() -> None:
    for field in OWN_FIELD.values():
        model: Any = JobSpec
        for part in field.split("."):
            model = model.model_fields[part].annotation


@pytest.mark.parametrize("value", ["a\nb", "a\0b", False, None, [1]])
def test_values_that_no_line_can_hold_are_refused(value: object) -> None:
    with pytest.raises(SpecError):
        _spec({"comment-of-mine": "x", "mail-user": value})


@pytest.mark.slurm
def test_every_long_option_of_the_installed_sbatch_is_in_a_list(
    slurm_environment: dict[str, str],
) -> None:
    text = processes.run(["sbatch", "--help"], timeout=20).stdout
    found = set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", text))
    assert len(found) > 80
    assert not found - PASSED - KEPT - OWN_FIELD.keys()
