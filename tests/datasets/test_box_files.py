"""Files of boxes that are recognised by their content."""

import json

import polars as pl
import pytest

from farther.datasets.box_files import describes_boxes

WITH_BOXES = {
    "a.JSON": json.dumps({"a.jpg": [[1, 2, 30, 40, 0]]}),
    "b.json": json.dumps([{"image": "a.jpg", "boundingBox": {"left": 1}}]),
    "c.jsonl": json.dumps({"image": "a.jpg", "objects": [{"x1": 1, "y1": 2, "x2": 3, "y2": 4}]}),
    "d.CSV": "filename;xmin;ymin;xmax;ymax;class\na.jpg;1;2;3;4;dog\n",
    "e.csv": "a.jpg,1,2,30,40,dog\n",
    "f.tsv": "image\tX\tY\tWidth\tHeight\na\t1\t2\t3\t4\n",
    "g.txt": "images/a.jpg 1,2,30,40,0 5,6,70,80,1\n",
    "h.XML": "<scene><obj kind='dog' xmin='1' ymax='2'/></scene>",
    "i.xml": "<n:s xmlns:n='u'><n:polygon>1 2 3</n:polygon></n:s>",
}
WITHOUT_BOXES = {
    "a.json": json.dumps({"lens": 50, "file": "a.jpg", "gps": [47.1, 8.5]}),
    "b.json": json.dumps([{"image_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}]),
    "c.csv": "file,xmin,ymin,xmax,ymax,class,score\na.jpg,1,2,3,4,dog,0.5\n",
    "d.csv": "file,lat,lon,height\na.jpg,47.1,8.5,400\n",
    "e.txt": "taken in June\nfrom 1 2 3 4\n",
    "f.xml": "<PAMDataset><Metadata key='a'/></PAMDataset>",
    "g.json": "",
    "h.txt": "",
    "i.xml": "<cut",
    "j.md": "xmin ymin xmax ymax class",
}


@pytest.mark.parametrize("name", WITH_BOXES)
def test_boxes_are_seen_in_every_form(tmp_path, name):
    (tmp_path / name).write_text(WITH_BOXES[name])
    assert describes_boxes(tmp_path / name)


@pytest.mark.parametrize("name", WITHOUT_BOXES)
def test_other_data_and_detections_are_no_boxes(tmp_path, name):
    (tmp_path / name).write_text(WITHOUT_BOXES[name])
    assert not describes_boxes(tmp_path / name)


def test_rows_of_a_file_that_is_called_like_an_image_are_boxes(tmp_path):
    file = tmp_path / "P0001.txt"
    file.write_text("gsd:0.14\n10.0 20.0 30.0 20.0 30.0 40.0 10.0 40.0 plane 0\n")
    assert describes_boxes(file, is_label=True)
    assert not describes_boxes(file)


def test_columns_of_parquet_are_looked_at(tmp_path):
    pl.DataFrame({"file": ["a.jpg"], "bbox": [[1, 2, 3, 4]]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"file": ["a.jpg"], "taken": [3]}).write_parquet(tmp_path / "b.parquet")
    assert describes_boxes(tmp_path / "a.parquet")
    assert not describes_boxes(tmp_path / "b.parquet")
