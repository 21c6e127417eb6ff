"""Digests of the code of each stage, and of each registered name: what a change of code reruns.

Reads the installed farther, the project's extensions, and the files that params.yaml names. Writes
artifacts/code.json, which all other stages wait for: the names in params.yaml, which become part of
commands and paths, and the sections that only late stages read are checked here before any of them
runs.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from farther import code, extensions
from farther.code import CODE, PACKAGES, Sources, defines, modules_of, registered
from farther.params import read_params
from farther.pipeline.later_sections import check_later_sections
from farther.pipeline.named_files import file_digests, texts_of
from farther.stage import run_stage
from farther.tables.documents import read_json, write_json
from farther.tables.files import digest
from farther.tables.folders import files_below

OUTPUT = "artifacts/code.json"

#: Stages that run one registered name each: a change concerns those stages only whose name it is.
BY_NAME = {
    "derive": "farther.derived",
    "ingest": "farther.datasets",
    "infer": "farther.detectors",
    "train": "farther_training.trainers",
}

#: Packages all of whose modules a stage may reach, as it imports those that names of params.yaml
#: ask for.
REACHED_BY_NAME = {
    "infer": ("farther.detectors.passes",),
    "fit": ("farther.methods",),
    "score": ("farther.methods",),
    "evaluate": ("farther.metrics",),
    "with_proposals": ("farther.metrics",),
    "choose": ("farther.metrics",),
    "cost": ("farther.methods", "farther.detectors"),
    "report": ("farther.methods", "farther.metrics"),
}

#: Modules that count with a stage, though they change no result elsewhere: the report prints the
#: version of farther.
ALSO = {"report": ("farther",)}

#: Stages that may run any code of extensions, besides those that run one name each.
WITH_EXTENSIONS = ("fit", "score", "evaluate", "with_proposals", "choose", "cost", "report")

#: Stages that print docstrings.
WITH_DOCSTRINGS = ("report",)

#: Stages that keep the results of each method, and the module that makes them.
KEPT_BY_METHOD = {"fit": "farther.scoring.fit", "score": "farther.scoring.score"}


def main(scripts: Sequence[Path] = ()) -> None:
    """Checks the names in params.yaml, then writes the digests.

    Args:
        scripts: Scripts of the stages, which a repository has beside the modules of the package.
    """
    source_digest = _source_digest(scripts)
    params = read_params()
    check_later_sections(params)
    digests: dict[str, Any] = {}
    if CODE.exists():
        digests = read_json(CODE)
    if digests.get("made_of") != source_digest:
        digests = code_digests(stage_starts(scripts))

    files = file_digests(params)
    for run, entry in (params.get("detectors") or {}).items():
        adapter_digests = _adapter_digests(entry or {}, digests["infer"])
        files["detectors"][run] = digest(files["detectors"][run], *adapter_digests)
    write_json(CODE, {**digests, "files": files, "made_of": source_digest})


def _adapter_digests(entry: Mapping[str, Any], adapters: Mapping[str, str]) -> list[str]:
    """Digests of the code of adapters that a run names besides its own.

    A parameter, or imported proposals, may name them.
    """
    texts = {text for _, text in texts_of(entry)}
    texts.discard(entry.get("adapter"))
    return [f"{name} {adapters[name]}" for name in sorted(texts & adapters.keys())]


def stage_starts(scripts: Collection[Path] = ()) -> dict[str, list[str | Path]]:
    """What each stage begins with: its module in `farther.pipeline`, and its script."""
    starts: dict[str, list[str | Path]] = {}
    for module in modules_of("farther.pipeline"):
        if defines(module, "main"):
            starts[module.rpartition(".")[2]] = [module]
    for script in scripts:
        starts.setdefault(script.stem, []).append(script)
    starts.pop(Path(__file__).stem, None)  # this module is the stage `code`
    return starts


def code_digests(starts: Mapping[str, Sequence[str | Path]]) -> dict[str, Any]:
    """Digests of the code of stages.

    Args:
        starts: The modules and scripts that each stage begins with.

    Returns:
        {stage: digest}, or {stage: {name: digest}} for those of `BY_NAME`; `kept`: digests of what
        stages keep and make again only where it changed:

            {"fit": {method: digest}, "score": {method: digest}, "user_defined": {metric: digest},
             "search": digest, "evaluate": digest}

        Names of extensions are listed wherever names are, as only importing a file says what kind
        of thing it registers.
    """
    sources = Sources()
    extension_modules = {name: (module,) for name, module in extensions.by_name().items()}
    all_extensions = sorted(extensions.packages())
    digests: dict[str, Any] = {"kept": _kept_digests(sources, extension_modules)}
    for stage, modules in starts.items():
        reached = [*modules, *ALSO.get(stage, ())]
        for package in REACHED_BY_NAME.get(stage, ()):
            reached += modules_of(package)
        if stage in WITH_EXTENSIONS:
            reached += all_extensions
        if stage in BY_NAME:
            by_name = {**_modules_by_name(BY_NAME[stage]), **extension_modules}
            digests[stage] = {
                name: sources.digest(*reached, *registering)
                for name, registering in by_name.items()
            }
        else:
            digests[stage] = sources.digest(*reached, docstrings=stage in WITH_DOCSTRINGS)
    return digests


def _kept_digests(sources: Sources, extension_modules: Mapping[str, tuple[str]]) -> dict[str, Any]:
    """See `kept` of `code_digests`."""
    digests: dict[str, Any] = {}
    methods = {**_modules_by_name("farther.methods"), **extension_modules}
    for stage, start in KEPT_BY_METHOD.items():
        digests[stage] = {
            name: sources.digest(start, *modules) for name, modules in methods.items()
        }
    evaluation = "farther.evaluation.evaluate"
    digests["user_defined"] = {
        name: sources.digest(evaluation, *modules) for name, modules in extension_modules.items()
    }
    digests["search"] = sources.digest("farther.scoring.search")
    digests["evaluate"] = sources.digest(evaluation, *modules_of("farther.metrics"))
    return digests


def _modules_by_name(package: str) -> dict[str, tuple[str]]:
    """The module, in a tuple, that registers each name of a package."""
    return {name: (module,) for name, module in registered(package).items()}


def _source_digest(scripts: Sequence[Path]) -> str:
    """Digest of the files of farther, of scripts and of extensions.

    While it is the same, all digests of code are.
    """
    lib = Path(code.__file__).parents[1]
    parts: list[str | Path] = []
    for package in PACKAGES:
        for file in sorted(files_below(lib / package)):
            if file.suffix != ".pyc":
                parts += [file.relative_to(lib).as_posix(), file]
    reached = Sources().reached(*extensions.packages())
    for source in sorted(reached, key=lambda source: source.label):
        if source.label.startswith(code.OUTSIDE):
            parts += [source.label, source.path]
    for script in scripts:
        parts += [script.name, script]
    return digest(*parts)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
