from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.errors import HpcplatError, InvalidError, NotFoundError
from hpcplat.jobs import SpecError, changed, parse, parse_file, read_spec, spec_of
from hpcplat.jobs.reading import LARGEST

SMALL = "name: small\ncommand: [echo, hi]\n"


def test_yaml_keeps_what_looks_like_a_time_or_an_octal_number_as_text() -> None:
    values = parse("a: 12:00:00\nb: 010\nc: on\nd: 2024-01-01\ne: 0x10\nf: 1_000\n")
    assert list(values.values()) == [
        "12:00:00",
        "010",
        "on",
        "2024-01-01",
        "0x10",
        "1_000",
    ]


def test_yaml_knows_numbers_truths_and_nothing() -> None:
    values = parse("a: 7\nb: -1.5e-3\nc: true\nd: null\ne:\nf: 1e-4\n")
    assert list(values.values()) == [7, -0.0015, True, None, None, 0.0001]


def test_yaml_and_json_give_the_same_spec() -> None:
    assert spec_of(parse(SMALL)) == spec_of(
        parse('{"name": "small", "command": ["echo", "hi"]}', "json")
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x [1]\nb: *x\n", "line 2: YAML aliases are not taken"),
        ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' stands there twice"),
        ("- a\n- b\n", "not a mapping"),
        ("", "not a mapping"),
        ("a: [1, 2\n", "not YAML"),
        ("a: b: c\n", "at line 1"),
        ("a: !!python/object/apply:os.system [id]\n", "not YAML"),
        ("a: " + "[" * 40 + "]" * 40, "deeper than 32"),
        ("a: " + "{a: " * 40 + "}" * 40, "deeper than 32"),
        (f"a: {'9' * 5000}\n", "can't be read"),
        ("{[1]: 2}\n", "unhashable key"),
        ("a: \x07\n", "not YAML"),
    ],
)
def test_bad_yaml_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(InvalidError) as raised:
        parse(text)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' stands there twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": ' + "[" * 40 + "]" * 40 + "}", "deeper than 32"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "deeper than 32"),
        ('{"a": 1', "not JSON"),
        ("[1]", "not a mapping"),
    ],
)
def test_bad_json_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(InvalidError) as raised:
        parse(text, "json")
    assert words.lower() in str(raised.value).lower()
    assert "\n" not in str(raised.value)


def test_a_large_spec_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(10 * LARGEST)
    with pytest.raises(InvalidError, match="larger than 1024 KiB"):
        parse_file(path)


def test_a_spec_that_is_not_utf8_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidError, match=r"not UTF-8 \(line 2, byte 6\)"):
        parse(b"a: b\nc\xff: d\n")


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert parse(b"\xef\xbb\xbfname: x\n") == {"name": "x"}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"job\.yaml is not there"):
        read_spec(tmp_path / "job.yaml")


def test_a_folder_is_no_spec(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="can't be read"):
        read_spec(tmp_path)


def test_changes_reach_into_groups(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(SMALL)
    changes = [
        "resources.nodes=2",
        "resources.time=12:00:00",
        "environment.variables.A=x=y",
        "command=[echo, bye]",
        "outputs=",
    ]
    spec = read_spec(path, changes[:-1])
    assert spec.resources.nodes == 2
    assert spec.resources.time is not None
    assert spec.resources.time.total_seconds() == 12 * 3600
    assert spec.environment.variables == {"A": "x=y"}
    assert spec.command == ("echo", "bye")
    assert changed({}, ["a.b="]) == {"a": {"b": ""}}


@pytest.mark.parametrize("change", ["a", "=b", ".a=b", "a..b=c", "name.x=1"])
def test_bad_changes_are_refused(change: str) -> None:
    with pytest.raises(InvalidError):
        changed({"name": "x"}, [change])


def test_a_change_that_is_no_yaml_is_text() -> None:
    assert changed({}, ["a=[1, "]) == {"a": "[1, "}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("echo a\necho b\n", "echo a\necho b\n"),  # YAML would fold it
        ("echo a # b", "echo a # b"),
        ("'a\n\nb'", "a\nb"),
        ('"a\\nb"', "a\nb"),
        ("|\n a\n b\n", "a\nb\n"),
        ("a: 1\nb: 2", {"a": 1, "b": 2}),
        ("# nothing", None),
    ],
)
def test_text_stays_to_the_letter(text: str, value: object) -> None:
    assert changed({}, [f"a={text}"]) == {"a": value}


def test_changes_leave_the_values_given_alone() -> None:
    values: dict[str, Any] = {"a": {"b": 1}}
    changed(values, ["a.b=2"])
    assert values == {"a": {"b": 1}}


@given(st.text(max_size=200))
def test_any_text_is_a_mapping_or_refused(text: str) -> None:
    for language in ("yaml", "json"):
        try:
            assert isinstance(parse(text, language), dict)
        except HpcplatError:
            continue


@given(st.binary(max_size=200))
def test_any_bytes_are_a_mapping_or_refused(content: bytes) -> None:
    try:
        assert isinstance(parse(content), dict)
    except HpcplatError:
        return


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["name", "command", "resources", "x"]), _json))
def test_any_mapping_is_a_spec_or_refused_by_field(values: dict[str, Any]) -> None:
    with contextlib.suppress(SpecError):
        spec_of(values)


def test_json_dumps_read_back() -> None:
    spec = spec_of(parse(SMALL + "resources: {time: 90m, memory: 2G}\n"))
    assert spec_of(json.loads(spec.model_dump_json())) == spec


def test_a_changed_value_that_is_no_utf_8_is_left_for_the_spec_to_refuse() -> None:
    assert changed({}, ["name=a\udcff"]) == {"name": "a\udcff"}
