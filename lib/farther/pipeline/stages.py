"""The stages of the pipeline: properties that dvc.yaml, `farther doctor`, `farther repro` use."""

from __future__ import annotations

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
        checks: Modules of `farther.command.doctor` whose function `check` checks what it reads.
        kept_by_git: Outputs below `artifacts` that are small and that git keeps: a folder ends in
            "/".
        is_demo: Whether only the demo world needs it.
        needs_clip: Whether it needs a CLIP model, which a project may do without.
    """

    name: str
    module: str | None = None
    section: str | None = None
    kinds: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
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
    Stage(name="code", module="farther.pipeline.code_digests"),
    Stage(name="demo", is_demo=True),
    Stage(
        name="ingest",
        module="farther.pipeline.ingest",
        section="datasets",
        checks=("ingest",),
        kept_by_git=("counts/",),
    ),
    Stage(
        name="derive",
        module="farther.pipeline.derive",
        section="derived",
        kinds=("paste", "corrupt", "blank"),
        checks=("derive",),
        kept_by_git=("counts/",),
    ),
    Stage(name="embed", module="farther.pipeline.embed", checks=("embed",), needs_clip=True),
    Stage(name="enrich", module="farther.pipeline.enrich", section="enrich", checks=("enrich",)),
    Stage(
        name="curate",
        module="farther.pipeline.curate",
        checks=("curate",),
        kept_by_git=("counts/",),
    ),
    Stage(
        name="stratify",
        module="farther.pipeline.stratify",
        checks=("stratify",),
        kept_by_git=("counts/", "plots/"),
        needs_clip=True,
    ),
    Stage(name="infer", module="farther.pipeline.infer", section="detectors", checks=("infer",)),
    Stage(name="fit", module="farther.pipeline.fit", checks=("fit",)),
    Stage(name="score", module="farther.pipeline.score"),
    Stage(
        name="evaluate",
        module="farther.pipeline.evaluate",
        checks=("proposals", "evaluate"),
        kept_by_git=("metrics/", "plots/"),
    ),
    Stage(name="choose", module="farther.pipeline.choose", checks=("choose", "cost")),
    Stage(
        name="report",
        module="farther.pipeline.report",
        checks=("report",),
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
        lines += [f"!/artifacts/{output}" for output in stage.kept_by_git]
    return tuple(dict.fromkeys(lines))
