from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hpcplat.jobs import JobKind, JobSpec, SpecError, spec_of

SMALL: dict[str, Any] = {"name": "small", "command": ["true"]}


def _spec(**values: Any) -> JobSpec:  # noqa: ANN401 - the spec checks them
    return spec_of({**SMALL, **values})


def _complaint(**values: Any) -> str:  # noqa: ANN401
    """Return the one line with which a spec is refused."""
    with pytest.raises(SpecError) as raised:
        _spec(**values)
    assert len(raised.value.complaints) == 1, raised.value
    line = str(raised.value)
    assert "\n" not in line
    return line


def test_what_is_not_said_has_a_default() -> None:
    spec = _spec()
    assert spec.kind is JobKind.COMMAND
    assert spec.resources.world == 1
    assert spec.requeues is False
    assert spec.recovery.warning == timedelta(minutes=2)


def test_a_spec_is_frozen() -> None:
    with pytest.raises(ValidationError):
        _spec().name = "other"


def test_ranks_are_one_a_gpu_unless_told_otherwise() -> None:
    assert _spec(resources={"nodes": 2, "gpus_per_node": 4}).resources.world == 8
    told = {"nodes": 2, "gpus_per_node": 4, "tasks_per_node": 1}
    assert _spec(resources=told).resources.world == 2


def test_spares_come_on_top_and_hold_no_rank() -> None:
    spec = _spec(resources={"nodes": 2, "gpus_per_node": 4, "spare_nodes": 1})
    assert spec.resources.all_nodes == 3
    assert spec.resources.world == spec.allocation.world == 8


def test_a_training_run_may_be_run_again_and_a_command_may_not() -> None:
    assert _spec(kind="train").requeues
    assert not _spec().requeues
    assert _spec(recovery={"requeue": True}).requeues
    assert not _spec(kind="train", recovery={"requeue": False}).requeues


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90m", 5400),
        ("12h", 43200),
        ("1d12h", 129600),
        ("1h30m10s", 5410),
        ("12:00:00", 43200),
        ("1-00:00:00", 86400),
        (90, 5400),
        ("90", 5400),
    ],
)
def test_times_are_said_in_many_ways(text: str | int, seconds: int) -> None:
    time = _spec(resources={"time": text}).resources.time
    assert time == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"name": 7}, "name: 7 is not text. Put it in quotes."),
        ({"name": ""}, "name: It is empty. Say something, or leave it out."),
        (
            {"name": "a\tb"},
            r"name: 'a\tb' holds the control character '\t'. Leave it out.",
        ),
        (
            {"name": "a\u202eb"},
            r"name: 'a\u202eb' holds the control character '\u202e'. Leave it out.",
        ),
        (
            {"name": "a\udcff"},
            r"name: 'a\udcff' is not valid UTF-8. Write it in UTF-8.",
        ),
        (
            {"resources": {"nodes": float("inf")}},
            "resources.nodes: inf is not a finite number. Write one that is.",
        ),
        (
            {"resources": {"memory": "99999999P"}},
            "resources.memory: 99999999P is above the limit 1024P. Give at most 1024P.",
        ),
        (
            {"kind": "train", "preset": "gpt-tiny", "command": None}
            | {"settings": {"model": {"a": [1, float("inf")]}}},
            "settings.model.a.1: inf is not a finite number. Write one that is.",
        ),
        (
            {"kind": "train", "preset": "gpt-tiny", "command": None}
            | {"settings": {"text": "a\udcff"}},
            r"settings.text: 'a\udcff' is not valid UTF-8. Write it in UTF-8.",
        ),
        ({"name": " a"}, "name: ' a' begins or ends with a blank. Write 'a'."),
        (
            {"resource": {}},
            "resource: There is no such key. The nearest is resources.",
        ),
        (
            {"resources": {"gpu_per_node": 2}},
            (
                "resources.gpu_per_node: There is no such key."
                " The nearest is gpus_per_node."
            ),
        ),
        (
            {"resources": {"nodes": 0}},
            "resources.nodes: 0 is below the limit 1. The nearest that would do is 1.",
        ),
        (
            {"resources": {"nodes": True}},
            "resources.nodes: true is not a number. Write a whole number.",
        ),
        (
            {"resources": {"nodes": 1.5}},
            "resources.nodes: 1.5 is not a whole number. Write it in digits.",
        ),
        (
            {"resources": {"gpu_type": "h100"}},
            (
                "resources.gpu_type: gpu_type is h100 but gpus_per_node is 0."
                " Give gpus_per_node, or leave gpu_type out."
            ),
        ),
        (
            {"resources": {"time": "UNLIMITED"}},
            (
                "resources.time: UNLIMITED is no end: it blocks backfill and maintenance."
                " Give a finite time, such as 12h."
            ),
        ),
        (
            {"resources": {"time": "30s"}},
            (
                "resources.time: 0:00:30 is below Slurm's shortest limit of 1 minute."
                " Give 1m."
            ),
        ),
        (
            {"resources": {"time": "soon"}},
            (
                "resources.time: 'soon' is not a duration."
                " Write 90m, 12h, 2d or 1-12:00:00."
            ),
        ),
        (
            {"resources": {"memory": "lots"}},
            (
                "resources.memory: 'lots' is not an amount of memory."
                " Write a number and one of K, M, G, T or P (64G is 64 GiB)."
            ),
        ),
        (
            {"kind": "trian"},
            (
                "kind: 'trian' is not known. The nearest is train."
                " It is one of 'command' or 'train'."
            ),
        ),
        ({"command": []}, "command: The command is empty. Say what to run."),
        ({"command": "  "}, "command: The command is empty. Say what to run."),
        ({"command": None}, "command: There is no command. Say what to run."),
        ({"command": ["a", 5]}, "command.1: 5 is not text. Put it in quotes."),
        (
            {"command": ["a\0b"]},
            "command.0: The value holds a NUL character. Leave it out.",
        ),
        (
            {"command": ["\ud800"]},
            "command.0: The value is not valid UTF-8. Save it as UTF-8.",
        ),
        (
            {"preset": "gpt"},
            (
                "preset: preset gpt is for training runs."
                " Write kind: train, or leave preset out."
            ),
        ),
        (
            {"kind": "train", "preset": "gpt"},
            (
                "preset: A training run needs a preset or a command, and not both."
                " Give one of them."
            ),
        ),
        (
            {"settings": {"a": 1}},
            "settings: settings are a preset's. Give a preset too.",
        ),
        (
            {"environment": {"variables": {"A": True}}},
            (
                "environment.variables.A: True is not text, and could be spelled in several"
                ' ways. Put it in quotes, such as "true".'
            ),
        ),
        (
            {"environment": {"variables": {"1A": "x"}}},
            (
                "environment.variables.1A: '1A' is not a variable's name."
                " Use letters, digits and _, not beginning with a digit."
            ),
        ),
        (
            {"environment": {"venv": "/a", "conda": "b"}},
            "environment.conda: venv and conda are both given. Leave one out.",
        ),
        (
            {"environment": {"variables": {"A": "x"}, "secrets": {"A": "env:A"}}},
            "environment.secrets.A: A is both a variable and a secret. Leave one out.",
        ),
        (
            {"data": "corpus"},
            (
                "data: 'corpus' is not allowed here. Write something that matches"
                " ^[A-Za-z0-9][A-Za-z0-9_./-]*@[A-Za-z0-9][A-Za-z0-9_.:-]*$"
            ),
        ),
        (
            {"array": "5-1"},
            "array: '5-1' holds no index. Write it as low-high:step.",
        ),
        (
            {"dependencies": [{"jb": "1"}]},
            "dependencies.0.jb: There is no such key. The nearest is job.",
        ),
        (
            {"parallelism": {"tensor": 3}, "resources": {"gpus_per_node": 4}},
            (
                "parallelism: tensor x context x pipeline = 3 does not divide the 4 ranks."
                " Choose sizes whose product divides nodes x GPUs per node (less spares)."
            ),
        ),
    ],
)
def test_each_fault_is_one_line_with_its_remedy(
    values: dict[str, Any], line: str
) -> None:
    if "dependencies" in values:  # the missing key is a fault of its own
        with pytest.raises(SpecError) as raised:
            _spec(**values)
        assert line in str(raised.value).splitlines()
        return
    assert _complaint(**values) == line


@pytest.mark.parametrize(
    "name", ["RANK", "MASTER_ADDR", "LD_PRELOAD", "SLURM_CONF", "sbatch_x", "BASH_ENV"]
)
def test_variables_that_steer_the_launch_are_refused(name: str) -> None:
    for group in ("variables", "secrets"):
        line = _complaint(environment={group: {name: "env:X"}})
        assert f"{name} is set by Slurm or by the launcher" in line


def test_the_library_path_may_be_set() -> None:
    _spec(environment={"variables": {"LD_LIBRARY_PATH": "/opt/lib"}})


def test_a_secret_that_was_written_out_is_not_repeated() -> None:
    line = _complaint(environment={"secrets": {"A": "hunter2"}})
    assert "hunter2" not in line


def test_an_argument_is_never_too_long_for_linux() -> None:
    long = "x" * 200_000
    assert "above the limit" in _complaint(command=["echo", long])
    assert "above the limit" in _complaint(environment={"variables": {"A": long}})
    assert _spec(command=long).command == long  # a script becomes a file


def test_dependencies_are_said_in_short() -> None:
    spec = _spec(dependencies=["prepare", "any:12", {"job": "x", "after": "failed"}])
    found = [(one.after, one.job) for one in spec.dependencies]
    assert found == [("ok", "prepare"), ("any", "12"), ("failed", "x")]


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(SpecError) as raised:
        spec_of({"nam": "x", "command": 5, "resources": {"nodes": -1}})
    fields = [complaint.field for complaint in raised.value.complaints]
    assert sorted(fields) == ["command", "nam", "name", "resources.nodes"]


_texts = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40
)


@given(
    st.lists(_texts, min_size=1, max_size=4),
    st.dictionaries(st.from_regex(r"V_[A-Z]{0,5}", fullmatch=True), _texts, max_size=4),
)
def test_specs_read_back_from_their_json(
    words: list[str], variables: dict[str, str]
) -> None:
    spec = _spec(
        command=["echo", *words],
        environment={"variables": variables},
        resources={"time": "1-2", "memory": "1.5G", "exclude": "n[1-3]"},
        dependencies=["any:x"],
        array="1-5%2",
        sbatch={"mail-type": "END", "overcommit": True},
    )
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


def test_staging_is_a_word_or_a_record() -> None:
    assert _spec().staging is None
    assert _spec(data="d@v1", staging=False).staging is None
    plain = _spec(data="d@v1", staging=True).staging
    assert plain is not None
    assert (plain.folder, plain.size, plain.age) == (None, 500 * 1024, timedelta(14))
    given = _spec(data="d@v1", staging={"size": "2T", "age": "3d"}).staging
    assert given is not None
    assert (given.size, given.age) == (2 * 1024 * 1024, timedelta(3))
    assert spec_of(_spec(data="d@v1", staging=True).model_dump(mode="json")).staging


def test_staging_needs_a_dataset_and_a_place_that_a_container_sees() -> None:
    assert "Give data too" in _complaint(staging=True)
    inside = {"container": {"image": "i.sif"}}
    line = _complaint(data="d@v1", staging=True, environment=inside)
    assert "Give staging.folder" in line
    assert _spec(data="d@v1", staging={"folder": "/local"}, environment=inside).staging


def test_a_job_larger_than_any_cluster_is_read_at_once() -> None:
    """Whether the cluster has as many is asked later; a request must not take minutes."""
    values = {"nodes": 10**6, "gpus_per_node": 1000, "time": "10m"}
    asked = spec_of({"name": "n", "command": "x", "resources": values})
    assert asked.allocation.world == 10**9
