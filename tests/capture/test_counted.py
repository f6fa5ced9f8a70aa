"""The count of sites that travels in a capsule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_capsules import dry_capsule
from shared_models import compiled, counts_of, shared_block

from fusionkit.capture.capsule import capsule_dict, write_capsule
from fusionkit.capture.capturing import capture_graphs
from fusionkit.capture.counted import by_first_path, counts_dict, first_paths, read_counts, with_counts
from fusionkit.capture.reading import read_capsule
from fusionkit.capture.sources import module_path
from fusionkit.errors import MisuseError
from fusionkit.store import write_json
from fusionkit.subjects.site_counts import ExpectedCount, ExpectedSite


def test_counts_come_back_and_the_capsule_is_the_same_again(tmp_path):
    subject = compiled("llama", plain=True)
    capture = with_counts(subject.capture(), subject.subject.model, counts_of("llama"))
    first = write_capsule(capture, tmp_path / "first.json")
    reread = read_capsule(first)
    assert dict(reread.counts) == counts_of("llama")
    assert write_capsule(reread, tmp_path / "again.json").read_bytes() == first.read_bytes()


def test_a_capsule_without_counts_is_as_before(tmp_path):
    data = capsule_dict(compiled("llama", plain=True).capture())
    assert "sites" not in data
    assert dict(read_capsule(write_json(tmp_path / "old.json", data)).counts) == {}


words = st.text(max_size=8)
counts = st.builds(
    lambda name, places, declared, complete: ExpectedCount(
        name,
        None if places is None else tuple(ExpectedSite(name, *place, i) for i, place in enumerate(places)),
        declared,
        complete,
    ),
    words,
    st.none() | st.lists(st.tuples(words, words, words), max_size=3),
    st.none() | st.integers(0, 99),
    st.booleans(),
)


@given(st.lists(counts, max_size=3))
def test_any_count_comes_back_as_it_was(many):
    by_name = {count.primitive: count for count in many}
    assert read_counts(counts_dict(by_name)) == by_name


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.update(sites=[]),
        lambda d: d["sites"].update(rms_norm=None),
        lambda d: d["sites"]["rms_norm"].pop("complete"),
        lambda d: d["sites"]["rms_norm"].update(declared=-1),
        lambda d: d["sites"]["rms_norm"].update(declared=True),
        lambda d: d["sites"]["rms_norm"].update(complete="yes"),
        lambda d: d["sites"]["rms_norm"].update(sites=3),
        lambda d: d["sites"]["rms_norm"]["sites"][0].pop("source"),
        lambda d: d["sites"]["rms_norm"]["sites"][0].update(module=3),
        lambda d: d["sites"]["rms_norm"]["sites"].append("norm"),
    ],
)
def test_a_damaged_count_is_one_line(tmp_path, damage):
    data = dry_capsule()
    damage(data)
    with pytest.raises(MisuseError, match=r"damaged\.json: `sites`") as caught:
        read_capsule(write_json(tmp_path / "damaged.json", data))
    assert "\n" not in str(caught.value)


def test_a_module_that_stands_twice_goes_by_its_first_path():
    subject = shared_block()
    assert first_paths(subject.model)["layers.1.norm"] == "layers.0.norm"
    plain = capture_graphs(subject)
    told = {module_path(node) for node in plain.graphs[0].nodes}
    assert {"layers.0.norm", "layers.1.norm"} <= told
    renamed = by_first_path(plain, subject.model)
    assert {module_path(node) for node in renamed.graphs[0].nodes} == {p for p in told if "layers.1" not in p}
    assert {module_path(node) for node in plain.graphs[0].nodes} == told
    assert by_first_path(plain, subject.model.layers[0]) is plain
