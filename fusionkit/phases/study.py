"""A study: the parameters of an investigation, the loaded subject and its counted sites; every phase starts from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from torch import nn

from fusionkit.capture.graphs import Capture
from fusionkit.config import CompilationConfig, FusionPatterns, select_patterns
from fusionkit.errors import MisuseError
from fusionkit.evidence.gates import Gate
from fusionkit.evidence.phase_records import PhaseRecord, write_phase
from fusionkit.fusions import fusion, pattern_names
from fusionkit.match.hits import default_patterns
from fusionkit.match.matching import Matching, match_subject, open_subject
from fusionkit.npu.target import shows_values
from fusionkit.passes.compiled import Compiled, compile_subject
from fusionkit.passes.trial import trial_groups
from fusionkit.subjects.build import Subject
from fusionkit.subjects.load import load_subject
from fusionkit.subjects.site_counts import ExpectedCount


@dataclass(frozen=True, slots=True)
class Study:
    """The parameters of an investigation, with its subject and site counts.

    `patterns`: the fusions of this run; by default those whose sites are counted. `trial`: the fusion of
    `pattern_file`, None without a file. `asserted`: the user's own site counts. `counts`: the sites counted in eager
    mode. `capture`: the graphs of a subject that is a capsule, which has no model.
    """

    model: Subject
    target: str
    window: str
    decompositions: str
    patterns: tuple[str, ...]
    pattern_file: Path | None
    trial: str | None
    asserted: Mapping[str, int | None]
    counts: Mapping[str, ExpectedCount]
    run_dir: Path
    capture: Capture | None = None

    def config(self, flags: FusionPatterns | None = None, *, freezing: bool = False) -> CompilationConfig:
        """The compile config of this study; `flags` replaces the chosen fusions."""
        return CompilationConfig(
            fusion_patterns=flags or select_patterns(tuple(n for n in self.patterns if n in pattern_names())),
            pattern_files=() if self.pattern_file is None else (str(self.pattern_file),),
            window=self.window,
            decompositions=self.decompositions,
            freezing=freezing,
        )

    @property
    def no_values(self) -> str | None:
        """The reason why this study has no numbers and no kernels; None if the target computes."""
        if self.capture is not None:
            return "a capsule holds graphs, neither weights nor values; it runs no kernel and has no numbers"
        if not shows_values(self.target):
            return "npu-dry shows graphs, shapes and dtypes; it runs no kernel and has no numbers"
        if self.model.fake is not None:
            return "the full size is built without weights; it runs no kernel and has no numbers"
        return None

    def compile(self, *, keep_inputs: bool = False) -> Compiled:
        """Compile the subject with the chosen fusions. Raises MisuseError for a capsule: it has no model."""
        self._need_model()
        return compile_subject(self.model, self.config(), keep_inputs=keep_inputs)

    def match(self) -> Matching:
        """The matching of a compile of the subject; for a capsule, of copies of its graphs.

        Raises MisuseError for a capsule without a graph in the study's window.
        """
        return match_subject(self.capture or self.model, self.config())

    def compile_plain(self, *, freezing: bool = False) -> Compiled:
        """Compile the subject with every fusion off. Raises MisuseError for a capsule: it has no model."""
        self._need_model()
        config = replace(self.config(select_patterns(()), freezing=freezing), pattern_files=())
        return compile_subject(self.model, config)

    def reload(self, dtype: str) -> Subject:
        """The same subject, same seed, in another dtype. Raises MisuseError for a capsule: it has no model."""
        self._need_model()
        return load_subject(self.model.name, size=self.model.size, dtype=dtype, seed=self.model.seed)

    def _need_model(self) -> None:
        if self.capture is not None:
            raise _no_model(self.model.name)

    def folder(self, name: str) -> Path:
        """A subfolder of the run folder, created if absent."""
        path = self.run_dir / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, phase: int, notebook: str, gates: Sequence[Gate], **claims: Any) -> PhaseRecord:
        """Write a phase's evidence into the run folder and return the record.

        `claims`: hits, numeric, benefit and artifacts of PhaseRecord.
        """
        off = [name for name in pattern_names() if name not in self.patterns]
        switch = "enable_* True by default" + (f"; not in this run: {', '.join(off)}" if off else "")
        record = PhaseRecord(
            phase=phase,
            notebook=notebook,
            subject=self.model.name,
            target=self.target,
            window=self.window,
            dtype=self.model.dtype,
            gates=tuple(gates),
            switch=switch,
            **claims,
        )
        write_phase(self.run_dir, record)
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyParameters:
    """The parameters that every phase takes, named as in the parameter cells."""

    subject: str
    size: str = "tiny"
    target: str = "cpu"
    dtype: str = "bfloat16"
    seed: int = 0
    window: str = "before-freezing"
    decompositions: str = "none"
    patterns: Sequence[str] = ()
    pattern_file: str | None = None
    expected_sites: Mapping[str, int | None] | None = None
    run_dir: str = "evidence/interactive"


def open_study(cell: Mapping[str, Any] | None = None, /, **parameters: Any) -> Study:
    """Choose the target of this process, load the subject and count its sites; or read a capsule (`*.json`).

    `cell`: the notebook's `globals()`, from which the fields of StudyParameters are read; `parameters` take
    precedence. A capsule has its own counts, size, dtype, seed, decompositions and target; `target` then only decides
    where patterns are traced. The target is activated first, since libraries look for an NPU when they are imported.
    Raises MisuseError for an unknown value.
    """
    names = [item.name for item in fields(StudyParameters)]
    given = StudyParameters(**{name: cell[name] for name in names if cell and name in cell} | parameters)
    asserted = dict(given.expected_sites or {})
    for name in asserted:
        fusion(name)
    source, counts = open_subject(
        given.subject, target=given.target, size=given.size, dtype=given.dtype, seed=given.seed
    )
    if isinstance(source, Capture):
        model, capture = _stand_in(source), source
        given = replace(given, target=source.target, decompositions=source.decompositions)
    else:
        model, capture = source, None
    chosen = tuple(given.patterns) or default_patterns(counts)
    select_patterns(chosen)
    trials = list(trial_groups(Path(given.pattern_file))) if given.pattern_file else []
    if trials and trials[0] not in chosen:
        chosen = (*chosen, trials[0])
    Path(given.run_dir).mkdir(parents=True, exist_ok=True)
    return Study(
        model=model,
        target=given.target,
        window=given.window,
        decompositions=given.decompositions,
        patterns=chosen,
        pattern_file=Path(given.pattern_file) if given.pattern_file else None,
        trial=trials[0] if trials else None,
        asserted=asserted,
        counts=counts,
        run_dir=Path(given.run_dir),
        capture=capture,
    )


class _Absent(nn.Module):
    """Placeholder for the model of a capsule; its forward raises MisuseError."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self) -> None:
        """Raise MisuseError: a capsule has no model."""
        raise _no_model(self.name)


def _stand_in(capture: Capture) -> Subject:
    """The subject of a capsule: name, size, dtype and seed, without a model."""
    model = _Absent(capture.subject)
    return Subject(model, (), name=capture.subject, size=capture.size, dtype=capture.dtype, seed=capture.seed)


def _no_model(name: str) -> MisuseError:
    return MisuseError(
        f"subject {name} is given as a capsule, which holds graphs and no model to run; give the model itself"
        " (phase 5 alone works from a capsule)"
    )
