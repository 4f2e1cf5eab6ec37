"""A job trains on the version that its name meant when it was submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcplat.jobs import spec_of
from server.datasets import with_dataset_pinned
from server.problems import FieldsError

DIGEST = "ab12" * 16


@pytest.fixture
def root(tmp_path: Path) -> str:
    dataset = tmp_path / "kjv"
    version = dataset / "versions" / DIGEST
    version.mkdir(parents=True)
    (version / "manifest.json").write_text("{}")
    (dataset / "tags").mkdir()
    (dataset / "tags" / "latest").write_text(DIGEST + "\n")
    return str(tmp_path)


def spec(asked: str, **settings: object) -> dict[str, object]:
    values = {"name": "j", "kind": "train", "preset": "gpt-tiny", "data": asked}
    return {**values, "settings": settings}


@pytest.mark.parametrize("asked", ["kjv@latest", "kjv@ab12", f"kjv@{DIGEST}"])
def test_a_tag_or_short_digest_becomes_the_whole_digest(root: str, asked: str) -> None:
    pinned = with_dataset_pinned(spec_of(spec(asked)), root)
    assert pinned.data == f"kjv@{DIGEST}"


@pytest.mark.parametrize("asked", ["kjv@v2", "psalms@latest", "kjv@ffff"])
def test_one_that_is_not_there_is_refused_by_its_field(root: str, asked: str) -> None:
    with pytest.raises(FieldsError) as refused:
        with_dataset_pinned(spec_of(spec(asked)), root)
    assert [fault.field for fault in refused.value.errors] == ["data"]


def test_a_job_that_brings_its_own_folder_is_left_as_it_is(root: str) -> None:
    own = spec_of(spec("mine@v1", data={"root": "/elsewhere"}))
    assert with_dataset_pinned(own, root) == own
