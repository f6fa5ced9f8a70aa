"""The repository around the scanned code: its package or checkout, and the torch_npu in it."""

from identify_examples import BRANCHED, MLP, NORM, scanned

from fusionkit.identify.repository import repository_of, with_repository

FUSED = "import torch_npu\n\n\ndef norm(x, w):\n    return torch_npu.npu_rms_norm(x, w)[0]\n"


def package(folder, *names):
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "__init__.py").write_text("", "utf-8")


def test_the_outermost_package_or_the_checkout_is_the_repository(tmp_path):
    package(tmp_path, "lib", "lib/models", "lib/models/a")
    assert repository_of(tmp_path / "lib" / "models" / "a") == tmp_path / "lib"
    (tmp_path / "scripts").mkdir()
    assert repository_of(tmp_path / "scripts") is None
    (tmp_path / ".git").mkdir()
    assert repository_of(tmp_path / "scripts") == tmp_path
    assert repository_of(tmp_path / "lib" / "models") == tmp_path / "lib"


def test_uses_outside_the_scanned_folder_stand_beside_candidates_of_their_op(tmp_path):
    package(tmp_path, "lib", "lib/models", "lib/ops")
    (tmp_path / "lib" / "ops" / "npu.py").write_text(FUSED, "utf-8")
    (tmp_path / "lib" / "ops" / "broken.py").write_text("import torch_npu\ndef", "utf-8")
    scan = with_repository(scanned(tmp_path / "lib" / "models", {"a.py": NORM.format(name="A"), "b.py": MLP}))
    norm, mlp = scan.candidates
    assert [(use.file, use.line) for use in norm.existing] == [("lib/ops/npu.py", 5)]
    assert mlp.existing == ()
    assert len(scan.uses) == 1


def test_what_was_scanned_is_not_told_twice(tmp_path):
    package(tmp_path, "lib")
    scan = scanned(tmp_path / "lib", {"a.py": BRANCHED})
    assert len(scan.uses) == 1
    assert with_repository(scan).uses == scan.uses


def test_without_a_repository_nothing_is_searched(tmp_path):
    (tmp_path / "models").mkdir()
    scan = scanned(tmp_path / "models", {"a.py": MLP})
    (tmp_path / "other.py").write_text(FUSED, "utf-8")
    assert with_repository(scan) == scan
