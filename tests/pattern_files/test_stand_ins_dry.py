"""Files of MindIE-SD's form on target npu-dry, where torch_npu itself is imported."""

from pathlib import Path

import pytest
from dry_processes import run_dry_script

pytestmark = pytest.mark.dry


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    return run_dry_script(Path(__file__).with_name("foreign_session.py"), str(folder))


def test_every_file_loads(answers):
    kinds = {what: kind for what, (kind, _) in answers["loaded"].items()}
    assert kinds.pop("unknown name") == "MisuseError"
    assert set(kinds.values()) == {"value"}
    assert answers["loaded"]["npu cast"][1] == '["rms_norm"]'


def test_explain_says_for_each_of_the_12_sites_of_flux_that_the_cast_is_another_op(answers):
    code, sites = answers["explain"]
    assert code == 1
    assert [site["status"] for site in sites] == ["miss"] * 12
    for site in sites:
        first = site["causes"][0]
        assert first["expected"].startswith("npu._npu_dtype_cast")
        assert first["actual"].startswith("aten._to_copy")


def test_the_graphs_of_a_foreign_backend_are_probed(answers):
    code, told = answers["probe"]
    assert code == 0
    assert told["target"] == "npu-dry"
    assert told["patterns"]["rms_norm"]["hits"] == 12


def test_the_file_is_linted(answers):
    assert answers["lint"] == 1  # the file's name is not the fusion's
