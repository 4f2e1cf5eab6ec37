from __future__ import annotations

from pathlib import Path

import pytest

from hpcplat.jobs import JobKind, JobSpec, parse, spec_of
from hpcplat.jobs.reference import page
from hpcplat.jobs.templates import TEMPLATES
from hpcplat.training import training_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "job-spec.md"


def test_the_reference_page_is_current() -> None:
    made = "make it again: python -m hpcplat.jobs.reference docs/reference/job-spec.md"
    assert PAGE.read_text() == page(), made


def test_every_key_is_on_the_page() -> None:
    for name in JobSpec.model_fields:
        assert f"| `{name}` |" in page()


@pytest.mark.parametrize("kind", JobKind)
def test_templates_are_right_as_they_stand(kind: JobKind) -> None:
    spec = spec_of(parse(TEMPLATES[kind]))
    assert spec.kind is kind
    if spec.preset:
        training_of(spec)
