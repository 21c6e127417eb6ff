"""The stages of the pipeline: properties that dvc.yaml, `farther doctor`, `farther repro` use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of the pipeline.

    Args:
        name: Its name, which is also that of its digests of code in artifacts/code.json.
        module: The module that does its work: `python -m MODULE` runs it. None where only its
            script, `stages/NAME.py`, does.
        section: Section of params.yaml: the stage is repeated for each of its entries. None for a
            stage that runs once.
        kinds: Names in dvc.yaml of a stage that has several there; each is repeated over
            `SECTION.KIND`. Empty where dvc.yaml has the stage under its own name.
        has_check: Whether `farther.command.doctor` has a module of its name with a function
            `check`.
        uses_gpu: Whether it uses a GPU where there is one: then one of these stages runs at a time.
        runs_alone: Whether nothing runs beside it on a machine with a GPU, whose times it measures
            by the clock.
        begins_early: Whether it begins before other stages that could begin, because it takes long
            and only the last stage waits for it.
        process_group: Stages of one group import the same packages and share processes. None for a
            stage that has a process of its own each time.
        kept_by_git: Outputs below `artifacts` that are small and that git keeps: a folder ends in
            "/"; "FOLDER/*.json" is the files of a folder without its sub-folders.
        is_demo: Whether only the demo world needs it.
        needs_clip: Whether it needs a CLIP model, which a project may do without.
    """

    name: str
    module: str | None = None
    section: str | None = None
    kinds: tuple[str, ...] = ()
    has_check: bool = True
    uses_gpu: bool = False
    runs_alone: bool = False
    begins_early: bool = False
    process_group: str | None = None
    kept_by_git: tuple[str, ...] = ()
    is_demo: bool = False
    needs_clip: bool = False

    @property
    def script(self) -> str:
        """File name of its script in the folder `stages` of farther's repository."""
        if self.module is None:
            return f"{self.name}.py"
        return f"{self.module.rpartition('.')[2]}.py"

    @property
    def section_by_dvc_name(self) -> dict[str, str | None]:
        """{name in dvc.yaml: the section that it is repeated over, None where it runs once}."""
        if not self.kinds:
            return {self.name: self.section}
        return {kind: f"{self.section}.{kind}" for kind in self.kinds}


#: All stages, in an order in which they can run.
STAGES = (
    Stage(
        name="code",
        module="farther.pipeline.code_digests",
        has_check=False,
        process_group="tables",
    ),
    Stage(name="demo", has_check=False, is_demo=True),
    Stage(
        name="ingest",
        module="farther.pipeline.ingest",
        section="datasets",
        process_group="tables",
        kept_by_git=("counts/",),
    ),
    Stage(
        name="derive",
        module="farther.pipeline.derive",
        section="derived",
        kinds=("paste", "corrupt", "blank"),
        process_group="tables",
        kept_by_git=("counts/",),
    ),
    Stage(name="embed", module="farther.pipeline.embed", uses_gpu=True, needs_clip=True),
    Stage(
        name="enrich",
        module="farther.pipeline.enrich",
        section="enrich",
        process_group="tables",
    ),
    Stage(
        name="curate",
        module="farther.pipeline.curate",
        process_group="tables",
        kept_by_git=("counts/",),
    ),
    Stage(
        name="stratify",
        module="farther.pipeline.stratify",
        process_group="tables",
        kept_by_git=("counts/", "plots/"),
        needs_clip=True,
    ),
    Stage(
        name="infer",
        module="farther.pipeline.infer",
        section="detectors",
        uses_gpu=True,
        process_group="networks",
    ),
    Stage(
        name="fit",
        module="farther.pipeline.fit",
        section="detectors",
        process_group="tables",
    ),
    Stage(
        name="score",
        module="farther.pipeline.score",
        section="detectors",
        has_check=False,
        process_group="tables",
    ),
    Stage(
        name="proposals",
        module="farther.pipeline.proposals",
        section="detectors",
        process_group="tables",
        kept_by_git=("recovered/*.json",),
    ),
    Stage(
        name="evaluate",
        module="farther.pipeline.evaluate",
        section="detectors",
        process_group="tables",
        kept_by_git=("metrics/", "plots/"),
    ),
    Stage(
        name="with_proposals",
        module="farther.pipeline.with_proposals",
        section="detectors",
        has_check=False,
        process_group="tables",
    ),
    Stage(
        name="choose",
        module="farther.pipeline.choose",
        section="detectors",
        process_group="tables",
    ),
    Stage(
        name="cost",
        module="farther.pipeline.cost",
        runs_alone=True,
        begins_early=True,
        process_group="tables",
    ),
    Stage(
        name="report",
        module="farther.pipeline.report",
        process_group="tables",
        kept_by_git=("seeds.json",),
    ),
)


def stage_of(address: str) -> Stage | None:
    """The stage of an address of DVC: `infer@voc-vos`, `paste@objects`, `curate`.

    Returns:
        None for a stage that a user added to dvc.yaml.
    """
    dvc_name = address.partition("@")[0]
    for stage in STAGES:
        if dvc_name in stage.section_by_dvc_name:
            return stage
    return None


def ignored_by_git() -> tuple[str, ...]:
    """Lines of .gitignore: caches, unfinished work, plots of DVC, and artifacts.

    But for the artifacts that git keeps.
    """
    lines = ["__pycache__/", ".work/", "/dvc_plots/", "/artifacts/*"]
    for stage in STAGES:
        lines.extend(_exceptions(stage))
    return tuple(dict.fromkeys(lines))


def _exceptions(stage: Stage) -> Iterator[str]:
    for output in stage.kept_by_git:
        folder, is_files_only, _ = output.partition("*")
        yield f"!/artifacts/{folder}"
        if is_files_only:
            yield f"/artifacts/{folder}*/"
