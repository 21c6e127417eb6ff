"""Says why an image landed where it is, or how a figure was computed.

`image` reads the ingested tables, the splits and the decisions; `number`
reads what the stage `evaluate` wrote. Nothing is computed anew.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from farther.command.project import Project, add_params

NAME = "explain"
SUMMARY = "say why an image is where it is, or where a figure comes from"
EXAMPLES = """
farther explain image 000000000139
farther explain image val2017/000000000139.jpg --benchmark voc --json
farther explain number voc-vos knn coco_near nose
farther explain number voc-vos - - map
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this subcommand."""
    kinds = parser.add_subparsers(title="what", dest="what", metavar="image|number", required=True)
    image = kinds.add_parser("image", help="why an image landed where it is")
    image.add_argument("image", help="the image's id in its dataset, its file name or its path")
    image.add_argument("--benchmark", metavar="NAME", help="look at this benchmark only")
    number = kinds.add_parser("number", help="how a figure was computed")
    number.add_argument("run", metavar="RUN", help="an entry of detectors")
    number.add_argument("method", metavar="METHOD", help="an entry of methods; any for figures of the detector")
    number.add_argument("split", metavar="SPLIT", help="an OOD split; any for figures of the detector")
    number.add_argument("metric", metavar="METRIC", help="see farther metrics")
    for one in (image, number):
        one.add_argument("--json", action="store_true", help="print JSON")
        add_params(one)


def run(given: argparse.Namespace) -> int:
    """Explains."""
    from farther.command.explanation import explain_image, explain_number
    from farther.command.output import as_json

    project = Project(given.params)
    if given.what == "image":
        found = explain_image(project, given.image, given.benchmark)
        text = _image(found)
    else:
        found = explain_number(project, given.run, given.method, given.split, given.metric)
        text = _number(found, given)
    print(as_json(found) if given.json else "\n".join(text))
    return 0


def _image(found: dict[str, Any]) -> Iterator[str]:
    from farther.command.output import coloured, paragraph

    for source in found["sources"]:
        size = f"{source['width']}×{source['height']}"
        there = "" if source["there"] else " (the file is not there)"
        yield coloured(f"{source['dataset']} {source['subset']} {source['image_id']}", "head")
        yield f"  {source['file']}, {size}{there}"
        yield from _objects(source["objects"])
    for name, places in found["benchmarks"].items():
        for place in places:
            where = ", ".join(place["splits"]) or "no split"
            yield ""
            yield coloured(
                f"benchmark {name}, {place['dataset']} {place['subset']} {place['image_id']}: {where}", "head"
            )
            fate = f"{place['fate']}: " if "fate" in place else ""
            yield paragraph(f"{fate}{place['why']}", 2)
            yield from _more(place)
    if not found["benchmarks"]:
        yield ""
        yield "No benchmark draws from this subset."


def _objects(objects: list[dict[str, Any]]) -> Iterator[str]:
    from farther.command.output import table

    if not objects:
        yield "  no object is labelled"
        return
    rows = [
        (
            f"  {one['object_id']}",
            one["category"],
            ", ".join(f"{edge:.0f}" for edge in one["box"]),
            " ".join(mark for mark, on in (("crowd", one["is_crowd"]), ("difficult", one["is_difficult"])) if on),
        )
        for one in objects
    ]
    yield table(("  object", "category", "box", ""), rows)


def _more(place: dict[str, Any]) -> Iterator[str]:
    from farther.command.output import paragraph

    if place.get("by_rules"):
        yield paragraph(f"by the rules alone: {place['by_rules']}", 2)
    for line in place.get("decisions", ()):
        what = " → ".join(filter(None, (line["decision"], line.get("id_class"))))
        note = f" ({line['note']})" if line.get("note") else ""
        yield paragraph(f"{line['reviewer']} said on {line['time']}: {what}{note}", 2)
    if place.get("similarity"):
        known = place["similarity"]
        shown = (f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}" for key, value in known.items())
        yield paragraph("similarity: " + ", ".join(one for one in shown if not one.startswith("image_id")), 2)


def _number(found: dict[str, Any], given: argparse.Namespace) -> Iterator[str]:
    from farther.command.output import coloured, table

    value = "none: its denominator is 0" if found["value"] is None else f"{found['value']:.6g}"
    yield coloured(f"{found['metric']} = {value}", "head")
    yield ""
    yield table(("", ""), list(_facts(found)))
    yield ""
    for name, split in found["splits"].items():
        yield coloured(f"split {name}", "head")
        yield f"  {split['images']} images ({split['failed_images']} unreadable), {split['objects']} objects"
        yield f"  {split['regions']} detections at or above t*"
        yield from (f"  {what:<8} {digest}" for what, digest in split["inputs"].items())
    yield ""
    yield coloured("files, and the stages that wrote them", "head")
    yield from (f"  {file}" for file in found["files"])
    yield table(("", ""), [("  stages", ", ".join(found["stages"]))])


def _facts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "says", found["says"] + (f" {found['better'].capitalize()} is better." if found["better"] else "")
    yield "computed", found["formula"]
    yield "defined", found["source"]
    if found.get("interval"):
        low, high = found["interval"]
        yield "interval", f"{low:.4f} … {high:.4f}: 95%, {found['replicates']} bootstrap replicates over images"
    if found.get("against_best"):
        best = found["against_best"]
        p = "" if best["p"] is None else f", p = {best['p']:.3f}"
        yield "best", f"{best['best']} is the best method here{p}"
    yield "protocol", f"{found['protocol']}, IoU {found['iou']:g}"
    yield "t*", f"{found['t*']['threshold']:.6g}, by rule {found['t*']['rule']}: detections below it are not made"
    if "tau" in found:
        tau = found["tau"]
        yield (
            "τ",
            (
                f"{tau['threshold']:.6g}, by rule {tau['rule']} to keep {tau['keep']:g} of {tau['regions']} ID "
                f"calibration regions; it keeps {tau['id_regions_kept']:.4f} of the {tau['id_regions']} ID test regions"
            ),
        )
        params = ", ".join(f"{key}={value}" for key, value in found["method"]["params"].items()) or "no parameters"
        on = f", fitted on {found['fitted_on']} regions" if found["fitted_on"] else ""
        yield "method", f"{found['method']['name']} ({params}){on}"
        if found["chosen"]:
            kind = "an oracle: chosen on test data" if found["chosen"]["oracle"] else "chosen on a validation split"
            yield "chosen", f"{len(found['chosen']['trials'])} trials on {found['chosen']['ood_split']}; {kind}"
    detector = found["detector"]
    yield "detector", f"{detector.get('name')}, weights {detector.get('weights_digest')}"
