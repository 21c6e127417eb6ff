"""Edits parts of a copy of the project and prints which digests of code do not change.

Usage: PYTHONPATH=COPY/lib edited.py COPY UNITS; UNITS is a JSON file: [[file, kind, name, line,
[digest, …]], …], a digest is "infer.yolo". Prints one JSON line per unit: the digests that did not
change, and whether the module is one of those that count nowhere.
"""

import json
import sys
from pathlib import Path

from tests.stages.units import Library, Unit

from farther import code
from farther.pipeline.code_digests import code_digests, stage_starts


def digest_at(digests: dict, place: str) -> str:
    value = digests
    for key in place.split("."):
        value = value[key]
    assert isinstance(value, str), f"{place} is not a digest"
    return value


def main(copy: Path, units: Path) -> None:
    assert Path(code.__file__).is_relative_to(copy)
    library = Library(copy / "lib")
    starts = stage_starts(sorted((copy / "stages").glob("*.py")))
    before = code_digests(starts)
    for *place, digests in json.loads(units.read_text()):
        unit = Unit(*place)
        file = copy / "lib" / unit.file
        content = file.read_bytes()
        stages = {digest.partition(".")[0] for digest in digests}
        try:
            file.write_bytes(library.edited(unit))
            after = code_digests({stage: starts[stage] for stage in stages})
        finally:
            file.write_bytes(content)
        unchanged = [
            digest for digest in digests if digest_at(after, digest) == digest_at(before, digest)
        ]
        module = unit.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        excused = module in code.WITHOUT_EFFECT and unit.kind != "data"
        print(json.dumps({"unit": place, "unchanged": unchanged, "excused": excused}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
