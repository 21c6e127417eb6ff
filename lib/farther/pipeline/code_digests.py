"""Digests of the code of each stage, and of each adapter, format and method: what a change of code reruns.

Reads the installed farther, the project's extensions and its rules files. Writes artifacts/code.json, which all other
stages wait for: the names in params.yaml, which become part of commands and paths, are checked here before any of
them runs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from farther import code, extensions
from farther.code import CODE, PACKAGES, digest_of, modules_of, registered
from farther.errors import FartherError
from farther.params import read_params
from farther.stage import run_stage
from farther.tables.documents import read_json, read_yaml, write_json
from farther.tables.files import digest, read_text
from farther.tables.folders import files_below

OUTPUT = "artifacts/code.json"

#: Stages that run one registered name each: a change concerns those stages only whose name it is.
BY_NAME = {
    "derive": "farther.derived",
    "ingest": "farther.datasets",
    "infer": "farther.detectors",
    "train": "farther_training.trainers",
}


def main(scripts: Sequence[Path] = ()) -> None:
    """Checks the names in params.yaml, then writes the digests.

    Args:
        scripts: Scripts of more stages, which a repository has beside those of the package.
    """
    made = {"made_of": _made_of(scripts), "rules": rules_digests(read_params())}
    earlier = read_json(CODE) if CODE.exists() else {}
    if earlier.get("made_of") != made["made_of"]:
        stages = {module.rpartition(".")[2]: module for module in modules_of("farther.pipeline")[1:]}
        earlier = code_digests({**{file.stem: file for file in scripts}, **stages})
    write_json(CODE, {**earlier, **made})


def _made_of(scripts: Sequence[Path]) -> str:
    """Digest of the files of farther, of scripts and of extensions: where it is the same, all digests of code are."""
    lib, own = Path(code.__file__).parents[1], extensions.sources()
    files = sorted(file for name in PACKAGES for file in files_below(lib / name) if file.suffix != ".pyc")
    named = [*(str(file.relative_to(lib)) for file in files), *own]
    return digest(*named, *files, *scripts, *own.values())


def code_digests(starts: Mapping[str, str | Path]) -> dict[str, Any]:
    """{stage: digest}, or {stage: {name: digest}} where registered names are run by the stage.

    The stage `evaluate` redoes only what changed, so `kept` has a digest for each method and user-defined metric, one
    for the other metrics and one for the choice of what to deploy; the digest of the stage itself is of all of these.
    Names of extensions are listed in all stages that run names, as only importing a file says what kind of thing it
    registers.

    Args:
        starts: The module or script that each stage begins with.
    """
    own = {name: extensions.source_files(module) for name, module in extensions.by_name().items()}
    methods: dict[str, Sequence[str | Path]] = {**_own_modules("farther.methods"), **own}
    metrics = [*registered("farther.metrics").values()]
    user_defined = {name: files for name, files in own.items() if any("Metric" in read_text(file) for file in files)}
    found: dict[str, Any] = {
        "kept": {
            "evaluate": digest_of("farther.evaluation.evaluate", *metrics),
            "user_defined": {name: digest_of("farther.evaluation.evaluate", *of) for name, of in user_defined.items()},
            "choose": digest_of("farther.evaluation.deploy.choose"),
            "fit": {name: digest_of("farther.scoring.fit", *files) for name, files in methods.items()},
            "score": {name: digest_of("farther.scoring.score", *files) for name, files in methods.items()},
        }
    }
    for stage, start in starts.items():
        if stage in BY_NAME:
            known: dict[str, Sequence[str | Path]] = {**_own_modules(BY_NAME[stage]), **own}
            also = modules_of("farther.detectors.passes") if stage == "infer" else ()
            found[stage] = {name: digest_of(start, *files, *also) for name, files in known.items()}
        elif stage in ("fit", "score", "evaluate"):
            all_own = [*methods.values(), *user_defined.values()]
            found[stage] = digest_of(start, *metrics, *(file for files in all_own for file in files))
        else:
            found[stage] = digest_of(start)
    return found


def _own_modules(package: str) -> dict[str, tuple[str]]:
    return {name: (module,) for name, module in registered(package).items()}


def rules_digests(params: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """{section: {name: digest}}: of rules files without comments, and of the files of boxes that runs import."""
    derived = {kind: entries or {} for kind, entries in (params.get("derived") or {}).items()}
    sections = {"benchmarks": params.get("benchmarks") or {}, **derived}
    found = {
        section: {name: digest(*_contents(entry or {})) for name, entry in entries.items()}
        for section, entries in sections.items()
    }
    return {**found, "detectors": {run: _boxes(entry or {}) for run, entry in (params.get("detectors") or {}).items()}}


def _boxes(entry: Mapping[str, Any]) -> str:
    """Digest of the files of proposals that a run imports; those that are absent are refused by `infer`."""
    proposals = entry.get("proposals")
    values = proposals.values() if isinstance(proposals, Mapping) else ()
    named = [Path(str(of["file"])) for of in values if isinstance(of, Mapping) and of.get("file")]
    files = (sorted(files_below(path)) if path.is_dir() else [path] for path in named)
    return digest(*(file for of in files for file in of if file.is_file()))


def _contents(entry: Mapping[str, Any]) -> Iterator[str]:
    """Contents of the rules files that an entry names, and of the files of names that those name."""
    images = entry.get("images")
    for path in (entry.get("rules"), images.get("rules") if isinstance(images, Mapping) else None):
        if path is None:
            continue
        try:
            rules = read_yaml(str(path))
            yield json.dumps(rules)
            if isinstance(rules, Mapping) and isinstance(rules.get("names"), str):
                yield json.dumps(read_yaml(Path(str(path)).parent / rules["names"]))
        except FartherError as error:  # the stage that needs the file says so
            yield str(error)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
