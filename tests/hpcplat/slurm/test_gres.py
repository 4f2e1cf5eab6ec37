"""Generic resources in every spelling that was seen, and in made ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.errors import InvalidError
from hpcplat.slurm.gres import Gres, gpu_count, gpus_by_type, parse_gres

words = st.from_regex(r"[a-z_][a-z0-9_\-.]{0,8}", fullmatch=True).filter(
    lambda word: word != "no_consume"
)
resources = st.builds(Gres, words, words | st.just(""), st.integers(0, 10**6))


def spelled(gres: Gres, prefix: str, sign: str, tail: str) -> str:
    kind = f":{gres.type}" if gres.type else ""
    return f"{prefix}{gres.name}{kind}{sign}{gres.count}{tail}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("(null)", ()),
        ("N/A", ()),
        ("gpu:4", (Gres("gpu", "", 4),)),
        ("gpu", (Gres("gpu", "", 1),)),
        ("gpu:h100", (Gres("gpu", "h100", 1),)),
        ("gpu:h100:4", (Gres("gpu", "h100", 4),)),
        ("gpu:h100:4(S:0-1)", (Gres("gpu", "h100", 4),)),
        ("gpu:h100:2(IDX:0-1)", (Gres("gpu", "h100", 2),)),
        ("gpu:h100:0(IDX:N/A)", (Gres("gpu", "h100", 0),)),
        ("gpu:(null):2(IDX:0,3)", (Gres("gpu", "", 2),)),
        ("gres:gpu:a100:4", (Gres("gpu", "a100", 4),)),
        ("gres/gpu:a100:4", (Gres("gpu", "a100", 4),)),
        ("gres:gpu:3", (Gres("gpu", "", 3),)),
        ("gres/gpu:h100=4", (Gres("gpu", "h100", 4),)),
        ("gres/gpu=4", (Gres("gpu", "", 4),)),
        (
            "gpu:a100:2(IDX:0,2-3),gpu:h100:1(S:0,2),shard:8",
            (Gres("gpu", "a100", 2), Gres("gpu", "h100", 1), Gres("shard", "", 8)),
        ),
        ("bandwidth:lustre:no_consume:4G", (Gres("bandwidth", "lustre", 4 * 2**30),)),
        ("gpu:1g.10gb:7", (Gres("gpu", "1g.10gb", 7),)),
        ("gpu:3090:2", (Gres("gpu", "3090", 2),)),
    ],
)
def test_every_spelling(text: str, expected: tuple[Gres, ...]) -> None:
    assert parse_gres(text) == expected


@pytest.mark.parametrize(
    "text", ["gpu:", "gpu:h100:4:5:6", "gpu:h100:-1", "gpu,", "gpu:4(", "gpu 4", "=4"]
)
def test_what_is_no_resource_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="not a generic resource"):
        parse_gres(text)


def test_gpus_are_counted_by_type() -> None:
    text = "gpu:a100:2,gpu:h100:1,gpu:a100:1,gpu:5,shard:8"
    assert gpus_by_type(text) == {"a100": 3, "h100": 1, "": 5}
    assert gpu_count(text) == 9
    assert gpu_count("(null)") == 0


@given(
    st.lists(resources, min_size=1, max_size=5),
    st.sampled_from(["", "gres:", "gres/"]),
    st.sampled_from(["", "(S:0-1)", "(IDX:0,2-3)", "(IDX:N/A)"]),
)
def test_resources_survive_their_spelling(
    many: list[Gres], prefix: str, tail: str
) -> None:
    text = ",".join(spelled(gres, prefix, ":", tail) for gres in many)
    assert list(parse_gres(text)) == many


@given(st.text(alphabet="gpu:4(),=h1/ ", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert all(gres.count >= 0 for gres in parse_gres(text))
    except InvalidError as error:
        assert error.remedy  # noqa: PT017  (either way out is right)
