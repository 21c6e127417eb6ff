import re
from urllib.parse import quote
from xml.sax.saxutils import escape

import pytest
from PIL import Image
from tests.datasets.conftest import ACCENT, DECOMPOSED, tables

from farther import datasets
from farther.datasets.ingest import ingest
from farther.datasets.voc import CLASSES
from farther.errors import DataError
from farther.projects import recognise

DOG = """
    <object>
        <name>dog</name><pose>Left</pose><truncated>1</truncated><difficult>0</difficult>
        <bndbox><xmin>48</xmin><ymin>240</ymin><xmax>195</xmax><ymax>371</ymax></bndbox>
    </object>"""

PERSON_WITH_PARTS = """
    <object>
        <name>person</name><difficult>1</difficult>
        <part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></part>
        <bndbox><ymax>500</ymax><xmax>353</xmax><ymin>12.5</ymin><xmin>8.25</xmin></bndbox>
        <part><name>hand</name><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>3</xmax><ymax>3</ymax></bndbox></part>
    </object>"""


def annotation(*objects: str, image_id: str = "2007_000001") -> str:
    return f"""<annotation>
    <folder>VOC2012</folder><filename>{image_id}.jpg</filename>
    <source><database>The VOC2007 Database</database></source>
    <size><width>353</width><height>500</height><depth>3</depth></size><segmented>1</segmented>{"".join(objects)}
</annotation>
"""


def one_image(xml, image_set="2007_000001\n"):
    return {
        "VOC2012/ImageSets/Main/train.txt": image_set,
        "VOC2012/Annotations/2007_000001.xml": xml,
    }


def read(root, subset="train", **params):
    return datasets.create("voc", root=root, **params).read(subset)


def test_pixels_that_count_from_one_become_edges(lay):
    annotations = read(lay(one_image(annotation(DOG, PERSON_WITH_PARTS))))
    images, objects = annotations.images, annotations.objects
    assert objects.box.tolist() == [
        [47, 239, 195, 371],
        [7.25, 11.5, 353, 500],
    ]  # parts are no objects
    assert [annotations.categories[k] for k in objects.category] == ["dog", "person"]
    assert objects.is_difficult.tolist() == [False, True]
    assert not objects.is_crowd.any()
    assert images.image_id.tolist() == ["2007_000001"]
    assert images.file.tolist() == ["VOC2012/JPEGImages/2007_000001.jpg"]
    assert (images.width.tolist(), images.height.tolist()) == ([353], [500])


def test_all_tags_but_name_and_box_may_be_missing(lay):
    corners = "<xmin>1</xmin><ymin>1</ymin><xmax>1</xmax><ymax>2</ymax>"
    bare = f"<object><name> cat </name><bndbox>{corners}</bndbox></object>"
    annotations = read(lay(one_image(f"<annotation>{bare}</annotation>")))
    assert annotations.objects.box.tolist() == [[0, 0, 1, 2]]  # one pixel wide, two high
    assert annotations.objects.is_difficult.tolist() == [False]
    assert (annotations.images.width.tolist(), annotations.images.height.tolist()) == ([0], [0])
    assert annotations.warnings == []


def test_image_sets_with_flags_windows_line_ends_a_byte_order_mark_and_blank_lines_are_read(lay):
    files = one_image(annotation(DOG), "\ufeff2007_000001 -1\r\n\r\n2007_000002  1\r\n")
    files["VOC2012/Annotations/2007_000002.xml"] = annotation(image_id="2007_000002")
    annotations = read(lay(files))
    assert annotations.images.image_id.tolist() == ["2007_000001", "2007_000002"]
    assert annotations.objects.image.tolist() == [0]  # the second image shows nothing


@pytest.mark.parametrize("name", ["my dog", "é&<", "7_é 8"])
def test_a_name_is_read_as_it_is_listed(lay, name):
    files = {
        "VOC2012/ImageSets/Main/train.txt": f"{name}\n",
        f"VOC2012/Annotations/{name}.xml": annotation(image_id=escape(name)),
    }
    assert read(lay(files)).images.image_id.tolist() == [name]


def test_a_subset_may_join_image_sets_of_several_years(lay):
    files = one_image(annotation(DOG))
    files["VOC2007/ImageSets/Main/trainval.txt"] = "000005\n"
    files["VOC2007/Annotations/000005.xml"] = annotation(DOG, DOG, image_id="000005")
    reader = datasets.create(
        "voc", root=lay(files), image_sets={"train": ["VOC2007/trainval", "VOC2012/train"]}
    )
    annotations = reader.read("train")
    assert reader.subsets() == ["train"]
    assert annotations.images.file.tolist() == [
        "VOC2007/JPEGImages/000005.jpg",
        "VOC2012/JPEGImages/2007_000001.jpg",
    ]
    assert annotations.objects.image.tolist() == [0, 0, 1]
    assert annotations.location(2) == ("VOC2012/Annotations/2007_000001.xml", "object[0]")


def test_the_root_may_be_the_folder_of_one_year(lay):
    files = {
        name.removeprefix("VOC2012/"): content
        for name, content in one_image(annotation(DOG)).items()
    }
    annotations = read(lay(files), "mine", image_sets={"mine": ["train"]})
    assert annotations.images.file.tolist() == ["JPEGImages/2007_000001.jpg"]


def test_the_original_subsets_that_are_present_are_read_by_default(lay):
    root = lay(
        {
            **one_image(annotation()),
            "VOC2012/ImageSets/Main/val.txt": "",
            "VOC2012/ImageSets/Main/dog_val.txt": "",
        }
    )
    assert datasets.create("voc", root=root).subsets() == ["train", "val"]


def test_classes_of_ones_own_are_a_parameter(lay):
    fox = DOG.replace("dog", "fox")
    annotations = read(lay(one_image(annotation(fox))), categories=["hare", "fox"])
    assert annotations.objects.category.tolist() == [1]
    assert annotations.categories == ["hare", "fox"]


def test_a_file_that_calls_its_image_otherwise_is_listed(lay):
    annotations = read(lay(one_image(annotation(DOG, image_id="other"))))
    (warning,) = annotations.warnings
    assert (warning.kind, warning.about, warning.field) == (
        "image called otherwise",
        "dataset",
        "filename",
    )
    assert (warning.file, warning.found) == ("VOC2012/Annotations/2007_000001.xml", "other.jpg")
    assert annotations.images.file.tolist() == ["VOC2012/JPEGImages/2007_000001.jpg"]


@pytest.mark.parametrize(
    ("old", "new", "field", "problem"),
    [
        ("<name>dog</name>", "", "name", "the field is missing; expected"),
        ("<xmin>48</xmin>", "", "bndbox.xmin", "the field is missing; expected"),
        (
            "<ymax>371</ymax>",
            "<ymax>many</ymax>",
            "bndbox.ymax",
            "expected a finite number, found 'many'",
        ),
        (
            "<ymax>371</ymax>",
            "<ymax>nan</ymax>",
            "bndbox.ymax",
            "expected a finite number, found nan",
        ),
        ("<xmax>195</xmax>", "<xmax>20</xmax>", "bndbox", "the size is negative"),
        (
            "<difficult>0</difficult>",
            "<difficult>no</difficult>",
            "difficult",
            "expected 0 or 1, found 'no'",
        ),
        ("bndbox", "box", "bndbox", "the field is missing; expected an object"),
    ],
)
def test_a_wrong_object_is_an_error_that_names_file_object_and_field(lay, old, new, field, problem):
    root = lay(one_image(annotation(PERSON_WITH_PARTS, DOG.replace(old, new))))
    with pytest.raises(DataError, match=re.escape(problem)) as error:
        read(root)
    assert error.value.file == str(root / "VOC2012/Annotations/2007_000001.xml")
    assert (error.value.row, error.value.field) == ("object[1]", field)


LISTS = "VOC2012/ImageSets/Main/train.txt"
XML = "VOC2012/Annotations/2007_000001.xml"
FIRST = "VOC2012/JPEGImages/2007_000001.jpg"


@pytest.mark.parametrize(
    ("file", "content", "row", "problem"),
    [
        (XML, annotation(DOG)[:-30], None, "not XML"),
        (XML, "", None, "not XML: no element found"),
        (XML, b"\xff\xfe\x00garbage", None, "not XML"),
        (
            XML,
            '<?xml version="1.0" encoding="nonsense"?><annotation/>',
            None,
            "not XML: unknown encoding",
        ),
        (
            XML,
            annotation().replace("353", "-3"),
            None,
            "expected a positive number of pixels, found -3",
        ),
        (
            LISTS,
            "2007_000001\n\n2007_000001\n",
            "3",
            f"image '2007_000001' occurs twice, first with the file {FIRST}",
        ),
        (LISTS, "../../../secret\n", "1", "file name '../../../secret.jpg' leaves its folder"),
        (LISTS, "/etc/passwd\n", "1", "leaves its folder"),
        (LISTS, "ab\xe9".encode("latin-1"), None, "not UTF-8 at byte 2"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it_and_the_line(lay, file, content, row, problem):
    root = lay({**one_image(annotation(DOG)), file: content})
    with pytest.raises(DataError, match=re.escape(problem)) as error:
        read(root)
    assert (error.value.file, error.value.row) == (str(root / file), row)


def test_absent_files_are_errors_that_say_what_lists_them(lay):
    root = lay(one_image(annotation(DOG), "2007_000001\n2007_000009\n"))
    with pytest.raises(
        DataError, match=r"2007_000009.xml: the file does not exist, but an image set lists"
    ):
        read(root)
    with pytest.raises(
        DataError, match=r"Main/val.txt: the image set does not exist; parameter 'image_sets'"
    ):
        read(root, "val")


@pytest.mark.parametrize(
    "name",
    [
        "/home/ann/photos/2007_000001.jpg",
        "../JPEGImages/2007_000001",
        r"C:\data\2007_000001.png",
        "2007_000001",
    ],
)
def test_a_file_name_with_folders_or_without_ending_names_its_image(lay, name):
    xml = annotation(DOG).replace("2007_000001.jpg", name)
    assert read(lay(one_image(xml))).warnings == []


def test_many_other_names_are_one_warning(lay):
    files = {f"VOC2012/Annotations/{n}.xml": annotation(DOG, image_id="other") for n in range(3)}
    (warning,) = read(lay({"VOC2012/ImageSets/Main/train.txt": "0\n1\n2\n", **files})).warnings
    assert warning.found == "other.jpg and 2 more"


@pytest.mark.parametrize(
    ("text", "difficult"), [("Unspecified", False), ("False", False), ("True", True)]
)
def test_difficult_may_be_a_text(lay, text, difficult):
    xml = annotation(DOG.replace("<difficult>0", f"<difficult>{text}"))
    assert read(lay(one_image(xml))).objects.is_difficult.tolist() == [difficult]


LAID_OUT = {
    "annots/a.xml": annotation(DOG.replace("dog", "fox")),
    "annots/b.xml": annotation(DOG.replace("dog", "badger"), DOG.replace("dog", "fox")),
    "pictures/a.PNG": (353, 500),
    "pictures/b.jpeg": (353, 500),
    "mixed/c.xml": annotation(DOG.replace("dog", "fox")),
    "mixed/c.jpg": (353, 500),
}


def test_xml_files_without_image_sets_are_read_from_any_folders(lay):
    root = lay(LAID_OUT)
    layout = {"train": ["annots", "pictures"], "test": ["mixed", "mixed"]}
    annotations = read(root, layout=layout)
    assert annotations.images.image_id.tolist() == ["a", "b"]
    assert annotations.images.file.tolist() == ["pictures/a.PNG", "pictures/b.jpeg"]
    assert annotations.categories == ["badger", "fox"]
    assert annotations.objects.category.tolist() == [1, 0, 1]
    assert read(root, "test", layout=layout).images.file.tolist() == ["mixed/c.jpg"]
    assert datasets.create("voc", root=root, layout=layout).subsets() == ["train", "test"]


def test_a_folder_without_xml_files_is_refused(lay):
    with pytest.raises(DataError, match="no XML file here; parameter 'layout' names the folders"):
        read(lay(LAID_OUT), layout={"train": ["pictures", "pictures"]})


def test_a_class_that_is_not_among_the_given_ones_is_an_error(lay):
    root = lay(one_image(annotation(PERSON_WITH_PARTS, DOG)))
    reader = datasets.create("voc", root=str(root), categories=["person", "fox"])
    with pytest.raises(
        DataError, match="unknown class 'dog'; parameter 'categories' has person, fox"
    ):
        reader.read(reader.subsets()[0])


@pytest.mark.parametrize(("name", "categories"), [("WBC", ["WBC"]), ("dog", list(CLASSES))])
def test_classes_of_image_sets_are_those_of_the_files_unless_all_are_voc_s(
    tmp_path, name, categories
):
    for folder in ("ImageSets/Main", "Annotations", "JPEGImages"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "ImageSets/Main/train.txt").write_text("a\n")
    box = "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    xml = f"<annotation><object><name>{name}</name>{box}</object></annotation>"
    (tmp_path / "Annotations/a.xml").write_text(xml)
    Image.new("RGB", (20, 10)).save(tmp_path / "JPEGImages/a.jpg")
    found = recognise(tmp_path)
    assert (found.entry["image_sets"], found.categories) == ({"train": ["train"]}, categories)


FILENAME_XML = (
    "<annotation><filename>{}</filename><object><name>fox</name>"
    "<bndbox><xmin>2</xmin><ymin>3</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>"
)


def voc(lay, filename_by_xml, images):
    """A reader of XML files (name: `filename`) and images."""
    files = {f"images/{name}": (40, 20) for name in images}
    for xml, filename in filename_by_xml.items():
        files[f"xml/{xml}"] = FILENAME_XML.format(filename)
    root = lay(files)
    return datasets.create("voc", root=root, layout={"train": ("xml", "images")})


@pytest.mark.parametrize("filename", ["x.jpg", "x.png"])
def test_of_two_images_of_one_name_the_file_name_in_the_xml_counts(lay, tmp_path, filename):
    reader = voc(lay, {"x.xml": filename}, ["x.jpg", "x.png"])
    images, _, kinds = tables(reader, tmp_path / "out", "train")
    assert images.file.tolist() == [f"images/{filename}"]
    assert kinds == {}


@pytest.mark.parametrize("filename", ["", "x", "y.jpg", "x.jpeg"])
def test_two_images_of_one_name_are_refused_where_the_xml_names_neither(lay, filename):
    with pytest.raises(
        DataError, match=r"x.xml: field 'filename': x.jpg and x.png have the name of this file"
    ):
        voc(lay, {"x.xml": filename}, ["x.jpg", "x.png"]).read("train")


@pytest.mark.parametrize(
    ("xml", "filename", "image"),
    [
        (f"{quote(ACCENT)}.xml", "", f"{ACCENT}.jpg"),
        (f"{DECOMPOSED}.xml", f"{ACCENT}.png", f"{ACCENT}.png"),
        ("a.jpg.xml", "a.jpg", "a.jpg"),
        ("0001.xml", "photo 7.png", "photo 7.png"),
    ],
)
def test_an_xml_file_in_another_spelling_is_read_and_listed_once(
    lay, tmp_path, xml, filename, image
):
    reader = voc(lay, {xml: filename, "z.xml": "z.jpg"}, [image, "z.jpg"])
    images, objects, kinds = tables(reader, tmp_path / "out", "train")
    assert sorted(images.file) == sorted([f"images/{image}", "images/z.jpg"])
    assert len(objects) == 2
    assert kinds == {
        "XML files called otherwise than their images": f"1 files, such as {xml} of images/{image}"
    }


def test_images_without_an_xml_file_are_listed_and_xml_files_without_image_refused(lay, tmp_path):
    reader = voc(lay, {"a.xml": "a.jpg"}, ["a.jpg", "b.jpg", "c.png"])
    _, _, kinds = tables(reader, tmp_path / "out", "train")
    assert kinds == {"images without an XML file": "2, such as 'b.jpg'"}
    (reader.root / "xml/x.xml").write_text(FILENAME_XML.format("x.jpg"))
    with pytest.raises(
        DataError,
        match=re.escape("'x' is annotated, but its file does not exist (1 of 2 are missing)"),
    ):
        ingest(reader, "pets", tmp_path / "refused")


def test_names_to_rename_that_no_class_has_are_listed(lay):
    reader = voc(lay, {"a.xml": "a.jpg"}, ["a.jpg"])
    renamed = datasets.create(
        "voc", root=reader.root, layout=reader.layout, renamed={"fox": "vulpes", "owl": "strix"}
    )
    read = renamed.read("train")
    assert read.categories == ["vulpes"]
    assert [(warning.kind, warning.found) for warning in read.warnings] == [
        ("no category to rename", "none called 'owl'")
    ]
