"""A CSV file of boxes for each folder of images."""

import csv
from pathlib import Path
from typing import ClassVar

from farther import Reader, register
from farther.datasets.base import Annotations, Collector, Expected, Location, image_file
from farther.datasets.recognition import Recognised
from farther.tables.files import inside


@register("boxes_csv")
class BoxesCSV(Reader):
    """`<subset>.csv` has one row per box: file, xmin, ymin, xmax, ymax, category. Images without a row are not read.

    Args:
        subset_names: Subsets to read.
    """

    SOURCE: ClassVar[str] = "docs/extending.md (the format)"

    subset_names: tuple[str, ...] = ("test",)

    @classmethod
    def recognises(cls, folder: Path) -> Recognised | None:
        names = [file.stem for file in sorted(folder.glob("*.csv")) if (folder / file.stem).is_dir()]
        return Recognised({"subset_names": names}) if names else None

    def expects(self, subset: str) -> list[Expected]:
        return [
            Expected("boxes", (f"{subset}.csv",), "your own"),
            Expected("images", (subset,), "your own"),
        ]

    def read(self, subset: str) -> Annotations:
        file = inside(self.root, f"{subset}.csv")
        found, categories = Collector(self.root), dict[str, int]()
        with file.open(newline="", encoding="utf-8") as lines:
            for number, row in enumerate(csv.DictReader(lines), start=2):
                name, location = row["file"], Location(file, f"line {number}")
                if name not in found.rows:
                    found.add_image(name, image_file(self.root, subset, name, location), location)
                category = categories.setdefault(row["category"], len(categories))
                try:
                    xmin, ymin, xmax, ymax = (
                        float(row[edge]) for edge in ("xmin", "ymin", "xmax", "ymax")
                    )
                except ValueError as error:
                    raise location.error(f"expected four numbers: {error}") from None
                found.add_object(found.rows[name], (xmin, ymin, xmax, ymax), category, number)
        return found.annotations(
            categories=list(categories),
            files=[file.name],
            row="line {row}",
            box_field="xmin … ymax",
        )
