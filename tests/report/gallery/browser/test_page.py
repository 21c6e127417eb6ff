"""The gallery in a real browser, opened from disk."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image
from tests.report.conftest import evaluation_in
from tests.report.gallery.conftest import Project
from tests.support.pages import until

from farther.tables import ImageAttributes

STATUS = "document.getElementById('status').textContent"


@pytest.fixture
def page(tab, gallery: Path, complaints):
    """The browser with the gallery open.

    It must report no error but the one image that is not on this machine.
    """
    complaints.expect("tame/1%20%231%25.png")
    show(tab, gallery)
    yield tab
    assert complaints() == []


def show(tab, gallery: Path, view: str = "") -> None:
    """Opens the gallery anew at a view."""
    tab.goto("about:blank")
    tab.goto(gallery.as_uri() + view)
    until(tab, f"/images?\\.|No image/.test({STATUS})")


def choose(tab, **values: str) -> None:
    """Sets filters as a click does, and waits for the data."""
    for name, value in values.items():
        tab.evaluate(
            f"(() => {{ const one = document.getElementById({name!r}); one.value = {value!r};"
            "one.dispatchEvent(new Event('change', { bubbles: true })); })()"
        )
    until(tab, f"{STATUS} !== 'Loading…'")


def shown(tab) -> list[str]:
    """Names of the images on the page."""
    return tab.evaluate("[...document.querySelectorAll('#cards b')].map((one) => one.textContent)")


def words(tab) -> list[str]:
    """The outcomes on the cards."""
    return tab.evaluate(
        "[...document.querySelectorAll('#cards .event')].map((one) => one.textContent)"
    )


def counts(tab) -> list[str]:
    """The numbers beside found, misclassified, missed and false unknown."""
    return tab.evaluate(
        "[...document.querySelectorAll('#outcomes label:not([hidden]) .count')]"
        ".map((one) => one.textContent)"
    )


def only(tab, *outcomes: int) -> None:
    """Ticks these outcomes and no other."""
    for k in (0, 1, 2, 3, 5):
        tab.evaluate(
            f"document.getElementById('outcome-{k}').checked !== {str(k in outcomes).lower()} && "
            f"document.getElementById('outcome-{k}').click()"
        )


def enlarged(tab) -> str:
    return tab.evaluate(
        "document.getElementById('large').open && document.getElementById('large-name').textContent"
    )


# What it shows


def test_the_first_split_is_shown_with_the_outcome_of_each_object(page):
    assert shown(page) == ["w1", "w2", "w3"]
    assert counts(page) == ["1", "1", "2", "1"]
    assert words(page) == [
        "✓ found: zebra, detected as cat 90%, score −2",
        "! false unknown: dog 60%, score −1",
        "≠ misclassified: zebra, detected as dog 80%, score 0.5",
        "○ missed: gnu",
        "○ missed: gnu",
    ]
    assert (
        page.evaluate(STATUS)
        == "4 unknown objects and 1 false unknown in 3 images. Flagged as unknown below τ = 0."
    )


def test_missed_objects_are_told_apart_by_whether_a_proposal_covers_them(
    tab, proposing, complaints
):
    show(tab, proposing.write_gallery())
    assert counts(tab) == ["1", "1", "1", "1", "1"]
    names = (
        "[...document.querySelectorAll('#outcomes label:not([hidden]) .name')]"
        ".map((one) => one.textContent.trim())"
    )
    assert tab.evaluate(names) == [
        "found",
        "misclassified",
        "missed, but a proposal covers it, at 0.20 false alarms per ID image",
        "missed, no proposal covers it",
        "false unknown",
    ]
    assert words(tab)[-2:] == [
        "◇ missed, but a proposal covers it: gnu, objectness 0.9",
        "○ missed, no proposal covers it: gnu",
    ]
    only(tab, 5)
    assert shown(tab) == ["w2"]
    assert (
        tab.evaluate("document.querySelector('#cards .mark.proposed text').textContent")
        == "proposal 0.9"
    )
    assert tab.evaluate("location.hash").endswith("%2Ccovered")
    only(tab, 2)
    assert shown(tab) == ["w3"]
    assert tab.evaluate("location.hash").endswith("%2Cuncovered")
    choose(tab, source="none")
    assert shown(tab) == ["w2", "w3"]
    assert tab.evaluate(names) == ["found", "misclassified", "missed", "false unknown"]
    assert complaints() == []


@pytest.mark.parametrize(
    ("outcome", "images"),
    [("missed", ["w2", "w3"]), ("uncovered", ["w3"]), ("found by proposals", ["w2"])],
)
def test_an_address_names_all_missed_objects_or_a_part_of_them(tab, proposing, outcome, images):
    show(tab, proposing.write_gallery(), f"#run=net&split=wild&outcome={outcome}")
    assert shown(tab) == images


def test_the_page_counts_what_the_tables_count(tab, built, complaints):
    show(tab, built / "artifacts" / "report" / "gallery.html")
    methods = evaluation_in(built).methods
    for method, measured in methods.items():
        for split, results in measured.splits.items():
            choose(tab, split=split, method=method)
            names = ("tp_u", "fn_misclassified", "fn_missed", "fp_u")
            assert counts(tab) == [str(results.of_group("open_set")[name]) for name in names], (
                method,
                split,
            )
    assert complaints() == []


def test_images_are_the_original_files_with_boxes_where_they_were_found(page):
    until(page, "document.querySelector('#cards img').complete")
    assert page.evaluate("document.querySelector('#cards img').naturalWidth") == 64
    assert (
        page.evaluate("document.querySelector('#cards svg').getAttribute('viewBox')") == "0 0 64 48"
    )
    box = "document.querySelector('#cards .mark.unknown .edge')"
    drawn = [
        page.evaluate(f"Number({box}.getAttribute({name!r}))")
        for name in ("x", "y", "width", "height")
    ]
    assert drawn == pytest.approx([4, 8, 24, 32], abs=0.01)
    marks = page.evaluate(
        "[...document.querySelectorAll('#cards li:first-child .mark')]"
        ".map((one) => one.className.baseVal)"
    )
    assert marks == ["mark truth", "mark unknown", "mark unknown"]
    alt = page.evaluate("document.querySelector('#cards img').alt")
    assert alt.startswith("Image w1: zebra: ✓ found; cat 90%, score −2: flagged as unknown;")


def test_boxes_that_the_filters_do_not_ask_for_are_faint_and_unnamed(page):
    only(page, 3)
    assert page.evaluate(
        "[...document.querySelectorAll('#cards .mark text')].map((one) => one.textContent)"
    ) == ["? dog 60%"]
    assert page.evaluate("document.querySelectorAll('#cards .mark.other').length") == 2


def test_kinds_of_boxes_can_be_hidden(page):
    style = "getComputedStyle(document.querySelector('#cards .mark.truth')).display"
    assert page.evaluate(style) == "inline"
    page.evaluate("document.getElementById('show-truth').click()")
    assert page.evaluate(style) == "none"


def test_a_file_that_is_elsewhere_is_named(tab, gallery, complaints):
    show(tab, gallery, "#run=net&split=tame")
    until(tab, "document.querySelector('.missing')")
    text = tab.evaluate("document.querySelector('.missing').textContent")
    assert text == "Not on this machine: ../../my photos/tame/1 #1%.png"
    assert shown(tab) == ["<i>t1</i>", "t2"]
    assert all("ERR_FILE_NOT_FOUND" in text for text in complaints())


def test_another_image_under_the_same_name_is_shown_without_boxes(
    tab, project, tmp_path, complaints
):
    shutil.copytree(project.root, tmp_path / "copy", ignore=shutil.ignore_patterns("report"))
    copy = type(project)(tmp_path / "copy")
    folder = copy.roots["photos"] / "wild"
    Image.new("RGB", (48, 64)).save(folder / "0 #1%.png")
    show(tab, copy.write_gallery())
    until(tab, "document.querySelector('.missing')")
    text = tab.evaluate("document.querySelector('.missing').textContent")
    assert text == "Shown without boxes: this file has 48 × 64 pixels, the tables say 64 × 48."
    assert tab.evaluate("document.querySelectorAll('#cards li:first-child svg').length") == 0
    assert complaints() == []


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_an_image_that_is_stored_on_its_side_is_shown_upright_with_its_boxes(
    tab, project, tmp_path, format, complaints
):
    shutil.copytree(project.root, tmp_path / "copy", ignore=shutil.ignore_patterns("report"))
    copy, exif = type(project)(tmp_path / "copy"), Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (48, 64)).save(copy.roots["photos"] / "wild" / "0 #1%.png", format, exif=exif)
    show(tab, copy.write_gallery())
    until(tab, "document.querySelector('#cards img').complete")
    assert tab.evaluate("document.querySelector('#cards img').naturalWidth") == 64
    assert tab.evaluate("document.querySelectorAll('#cards li:first-child svg').length") == 1
    assert complaints() == []


def test_names_are_text_and_never_markup(page):
    choose(page, split="tame")
    assert shown(page)[0] == "<i>t1</i>"
    assert "✓ found: <b>ox</b>, detected as dog 65%, score −3" in words(page)
    assert page.evaluate("document.querySelectorAll('#cards i, #cards b b, .event b').length") == 0


# ID test images


def offered(tab) -> list[str]:
    """The outcomes that can be chosen."""
    return tab.evaluate(
        "[...document.querySelectorAll('#outcomes label:not([hidden]) .name')]"
        ".map((one) => one.textContent.trim())"
    )


def test_id_images_show_what_becomes_of_known_objects(tab, with_known, complaints):
    show(tab, with_known.write_gallery(), "#run=net&split=test")
    assert offered(tab) == [
        "correct",
        "wrong class",
        "flagged as unknown",
        "missed",
        "false unknown",
    ]
    assert counts(tab) == ["1", "1", "1", "1", "1"]
    assert words(tab) == [
        "= correct: cat, detected as cat 90%, score 2",
        "↔ wrong class: cat, detected as dog 80%, score 1",
        "? flagged as unknown: cat, detected as cat 70%, score −1",
        "! false unknown: dog 60%, score −2",
        "○ missed: dog",
    ]
    assert tab.evaluate(STATUS).startswith("4 known objects and 1 false unknown in 3 images.")
    choose(tab, method="two")
    assert counts(tab) == ["2", "1", "0", "1", "0"]
    assert complaints() == []


def test_id_images_are_not_among_those_of_all_ood_splits(tab, with_known):
    show(tab, with_known.write_gallery(), "#run=net&split=")
    assert "k1" not in shown(tab)
    assert "correct" not in offered(tab)
    choose(tab, split="distance:near")
    assert "w1" in shown(tab)
    assert "k1" not in shown(tab)


@pytest.mark.parametrize(
    ("view", "images"),
    [
        ("outcome=flagged as unknown,false unknown", ["k2"]),
        ("category=cat&class=dog&outcome=wrong class", ["k1"]),
        ("class=(unknown)", ["k2"]),
        ("class=(missed)", ["k3"]),
        ("category=cat", ["k1", "k2"]),
    ],
)
def test_an_address_leads_to_known_objects(tab, with_known, view, images):
    show(tab, with_known.write_gallery(), f"#run=net&split=test&{view}")
    assert shown(tab) == images


def test_a_view_of_a_part_of_the_images_says_how_many_the_link_counted(tab, with_known):
    page = with_known.write_gallery()
    show(tab, page, "#run=net&split=test&category=cat&of=57")
    assert tab.evaluate(STATUS).startswith("3 of 57 shown: 3 known objects in 2 images.")
    assert tab.evaluate("location.hash").endswith("&of=57")
    choose(tab, category="dog")
    assert tab.evaluate(STATUS).startswith("1 known object in 1 image.")
    assert "of=" not in tab.evaluate("location.hash")


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gallery of two runs, with the weather of the images of `wild`."""
    project = Project(tmp_path_factory.mktemp("divided"))
    project.make()
    ImageAttributes(
        image_id=["w1", "w2", "w3"], attribute=["weather"] * 3, value=["rain", "rain", "clear"]
    ).write(project.artifacts / "splits/zoo/wild/attributes.parquet")
    return project.write_gallery(others=[project.add_swapped()])


def test_a_subset_shows_its_images_and_objects_only(tab, divided):
    show(tab, divided)
    choose(tab, subset="weather=rain")
    assert shown(tab) == ["w1", "w2"]
    options = "[...document.getElementById('subset').options].map((one) => one.textContent)"
    assert tab.evaluate(options) == [
        "all",
        "size=small (4)",
        "weather=clear (1)",
        "weather=rain (4)",
    ]
    assert "subset=weather%3Drain" in tab.evaluate("location.hash")
    choose(tab, subset="weather=clear")
    assert shown(tab) == ["w3"]
    show(tab, divided, "#run=net&split=wild&subset=weather%3Drain&outcome=missed")
    assert shown(tab) == ["w2"]


def test_two_detectors_differ_in_the_objects_of_which_each_says_something_else(tab, divided):
    show(tab, divided, "#run=net&split=wild&method=one&other=swapped")
    assert shown(tab) == ["w1", "w2"]
    assert words(tab) == [
        "✓ found: zebra, detected as cat 90%, score −2; swapped (zoo): ≠ misclassified",
        "≠ misclassified: zebra, detected as dog 80%, score 0.5; swapped (zoo): ✓ found",
    ]
    choose(tab, other="")
    assert shown(tab) == ["w1", "w2", "w3"]
    choose(tab, run="swapped")
    assert tab.evaluate(
        "[...document.getElementById('other').options].map((one) => one.value)"
    ) == [
        "",
        "net",
    ]


def test_each_number_of_a_table_is_that_of_the_images_behind_it(tab, built):
    report = built / "artifacts" / "report"
    tab.goto((report / "detectors" / "pets-net.html").as_uri())
    links = tab.evaluate(
        "[...document.querySelectorAll('.linked a')].map((one) => "
        "[one.href, one.textContent, one.closest('tr').querySelector('td').textContent])"
    )
    assert len(links) > 10
    for address, text, objects in links:
        tab.goto("about:blank")
        tab.goto(address)
        until(tab, f"/images?\\.|No image/.test({STATUS})")
        number = tab.evaluate(STATUS).split()[0]
        if "subset=" in address and "outcome=" in address:  # a share of the row's objects
            number = f"{100 * int(number) / int(objects):.1f}"
        assert text.split()[0] == number, address


def test_a_part_of_a_bar_leads_to_its_images(tab, built):
    page = built / "artifacts" / "report" / "detectors" / "pets-net.html"
    tab.goto(page.as_uri())
    bar = "document.querySelector('.chart .mark-rect.role-mark path')"
    until(tab, "document.querySelector('.chart details.save')")  # the chart is complete
    # The address is kept instead of opened: a page that is left answers nothing any more.
    tab.evaluate(
        "HTMLAnchorElement.prototype.dispatchEvent = function () { window.opened = this.href; }, 1"
    )
    tab.evaluate(f"{bar}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
    x, y = tab.evaluate(
        f"(({{ x, y, width, height }}) => [x + width / 2, y + height / 2])"
        f"({bar}.getBoundingClientRect())"
    )
    tab.mouse.click(x, y)
    until(tab, "window.opened")
    address = tab.evaluate("window.opened")
    assert "gallery.html#run=pets-net" in address
    assert "outcome=" in address


# Filters


@pytest.mark.parametrize(
    ("filters", "images"),
    [
        ({"category": "zebra"}, ["w1", "w2"]),
        ({"category": "gnu"}, ["w2", "w3"]),
        ({"class": "cat"}, ["w1"]),
        ({"class": "dog"}, ["w1", "w2"]),
        ({"class": "dog", "category": "zebra"}, ["w2"]),
        ({"most": "-1.5"}, ["w1"]),
        ({"least": "0"}, ["w2"]),
        ({"by": "confidence", "least": "0.85"}, ["w1"]),
        ({"by": "confidence", "most": "0.5"}, []),
    ],
)
def test_filters_narrow_what_is_shown(page, filters, images):
    choose(page, **filters)
    assert shown(page) == images
    page.evaluate("document.getElementById('reset').click()")
    assert shown(page) == ["w1", "w2", "w3"]


def test_outcomes_can_be_chosen(page):
    for outcome, images in enumerate([["w1"], ["w2"], ["w2", "w3"], ["w1"]]):
        only(page, outcome)
        assert shown(page) == images
        assert counts(page) == ["1", "1", "2", "1"]
    only(page)
    assert page.evaluate(STATUS).startswith("No image passes these filters.")


def test_each_choice_says_how_many_it_would_leave(page):
    options = "[...document.getElementById({!r}).options].map((one) => one.textContent)"
    assert page.evaluate(options.format("category")) == ["all", "gnu (2)", "zebra (2)"]
    only(page, 1, 3)
    assert page.evaluate(options.format("category")) == ["all", "zebra (1)"]
    assert page.evaluate(options.format("class")) == ["all", "dog (2)", "unknown (flagged) (1)"]
    choose(page, category="zebra")
    assert counts(page) == ["1", "1", "0", "0"]


def test_another_method_makes_other_outcomes_of_the_same_detections(page):
    choose(page, method="two")
    assert counts(page) == ["1", "1", "2", "0"]
    assert words(page)[:2] == [
        "≠ misclassified: zebra, detected as cat 90%, score 3",
        "✓ found: zebra, detected as cat 70%, score −5",
    ]


def test_limits_to_the_score_of_one_method_do_not_stay_for_another(page):
    choose(page, least="0.2")
    assert shown(page) == ["w2"]
    choose(page, method="two")
    assert page.evaluate("document.getElementById('least').value") == ""
    assert shown(page) == ["w1", "w2", "w3"]


def test_of_many_images_the_page_says_how_many_it_has(tab, project, tmp_path):
    shutil.copytree(project.root, tmp_path / "copy", ignore=shutil.ignore_patterns("report"))
    show(tab, type(project)(tmp_path / "copy").write_gallery(images=2))
    note = tab.evaluate("document.getElementById('left-out').textContent")
    assert (
        note
        == "wild: 2 of 4 images. They are evenly spread over the split; the counts are of these."
    )
    assert shown(tab) == ["w1", "w3"]
    choose(tab, split="tame")
    assert tab.evaluate("document.getElementById('left-out').textContent") == ""


def test_all_splits_can_be_seen_together_in_the_order_of_the_score(page):
    choose(page, split="", order="rising")
    assert counts(page) == ["32", "31", "3", "1"]
    assert shown(page)[:3] == ["m00", "m01", "m02"]
    choose(page, order="falling")
    assert shown(page)[0] == "m59"
    only(page, 0, 2)
    choose(page, order="rising", **{"class": "dog"})
    assert shown(page) == ["<i>t1</i>"]


def test_images_without_a_score_stand_last(page):
    choose(page, order="rising")
    assert shown(page) == ["w1", "w2", "w3"]
    choose(page, order="falling")
    assert shown(page) == ["w2", "w1", "w3"]


# Many, by and by


def test_cards_are_drawn_as_they_are_scrolled_to(page):
    choose(page, split="many")
    assert page.evaluate(STATUS).startswith("60 unknown objects in 60 images.")
    until(page, "document.getElementById('more').getBoundingClientRect().top > innerHeight + 600")
    before = len(shown(page))
    assert 24 <= before < 60
    page.evaluate("document.getElementById('more').scrollIntoView()")
    until(page, f"document.querySelectorAll('#cards li').length > {before}")
    more = "document.getElementById('more')"
    until(page, f"({more}.scrollIntoView(), {more}.hidden)")
    assert shown(page) == [f"m{i:02}" for i in range(60)]


# Keyboard


def test_everything_can_be_done_with_the_keyboard(page):
    page.evaluate("document.getElementById('outcome-3').focus()")
    for _ in range(4):  # three kinds of boxes, then the first card
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.place") == "0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert enlarged(page) == "w2"
    page.keyboard.press("ArrowRight")
    assert enlarged(page) == "w3"
    page.keyboard.press("ArrowRight")  # there is none
    assert enlarged(page) == "w3"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert enlarged(page) == "w1"
    page.keyboard.press("Escape")
    until(page, "!document.getElementById('large').open")
    until(page, "document.activeElement.dataset.place === '0'")


def test_arrows_walk_over_rows_and_on_to_cards_that_were_not_drawn(page):
    page.set_viewport_size({"width": 800, "height": 600})
    choose(page, split="many")
    row = page.evaluate(
        "[...document.querySelectorAll('#cards li')]"
        ".filter((one, _, all) => one.offsetTop === all[0].offsetTop).length"
    )
    page.evaluate("document.querySelector('.card').focus()")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("Number(document.activeElement.dataset.place)") == row
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")  # there is none above
    assert page.evaluate("Number(document.activeElement.dataset.place)") == 0
    page.keyboard.press("End")
    last = page.evaluate("Number(document.activeElement.dataset.place)")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Number(document.activeElement.dataset.place)") == last + 1


def test_an_enlarged_image_tells_all_that_is_in_it(page):
    page.evaluate("document.querySelector('.card').click()")
    told = page.evaluate(
        "[...document.querySelectorAll('#large-words li')].map((one) => one.textContent)"
    )
    assert told == [
        "✓ found: zebra, detected as cat 90%, score −2",
        "! false unknown: dog 60%, score −1",
        "zebra: ✓ found",
        "cat 90%, score −2: flagged as unknown",
        "dog 60%, score −1: flagged as unknown (! false unknown)",
    ]
    assert page.evaluate("document.querySelectorAll('#large .mark text').length") == 3
    assert (
        page.evaluate("document.getElementById('large-place').textContent") == "1 of 3 images, wild"
    )


# The address


def test_a_view_can_be_sent_as_its_address(page, gallery):
    only(page, 0, 1)
    choose(page, split="many", method="one", order="falling", least="-10")
    page.evaluate("document.querySelectorAll('.card')[1].click()")
    view, seen = page.evaluate("location.hash"), shown(page)
    assert seen[:2] == ["m59", "m58"]
    show(page, gallery, view)
    until(page, "document.getElementById('large').open")
    assert enlarged(page) == "m58"
    assert shown(page) == seen
    assert page.evaluate("location.hash") == view
    assert page.evaluate("document.getElementById('outcome-2').checked") is False


def test_an_address_that_names_what_is_not_there_shows_what_is(page, gallery):
    show(page, gallery, "#run=none&split=none&method=none&category=none&order=none&image=none")
    assert page.evaluate("document.getElementById('run').value") == "net"
    assert page.evaluate(STATUS).startswith("No image passes these filters.")
    assert (
        page.evaluate("document.getElementById('category').selectedOptions[0].textContent")
        == "none (0)"
    )
    page.evaluate("document.getElementById('reset').click()")
    assert len(shown(page)) > 3


def test_another_address_replaces_an_enlarged_image(page):
    page.evaluate("document.querySelectorAll('.card')[0].click()")
    page.evaluate("location.hash = '#run=net&split=wild&method=one&outcome=missed&image=wild/w3'")
    until(page, "document.getElementById('large-name').textContent === 'w3'")
    assert enlarged(page) == "w3"
    assert (
        page.evaluate("document.getElementById('large-place').textContent") == "2 of 2 images, wild"
    )
    page.keyboard.press("Escape")
    until(page, "document.activeElement.dataset.place === '1'")
    assert "image" not in page.evaluate("location.hash")


def test_a_link_within_the_page_leaves_the_view_as_it_is(page):
    choose(page, category="gnu")
    page.evaluate("document.querySelector('.skip').click()")
    assert page.evaluate("location.hash") == "#content"
    assert shown(page) == ["w2", "w3"]


def test_data_that_is_not_beside_the_page_is_named(tab, gallery, tmp_path):
    shutil.copytree(gallery.parent, tmp_path / "report")
    (tmp_path / "report" / "gallery" / "net" / "wild.js").unlink()
    tab.goto((tmp_path / "report" / gallery.name).as_uri())
    until(tab, f"{STATUS}.includes('net/wild.js is not beside this page')")
    choose(tab, split="many")
    assert tab.evaluate(STATUS).startswith("60 unknown objects")


# Accessibility


def test_an_enlarged_image_is_not_wider_than_a_phone(page):
    page.set_viewport_size({"width": 360, "height": 740})
    page.evaluate("document.querySelector('.card').click()")
    assert page.evaluate("document.getElementById('large').getBoundingClientRect().right") <= 360


def test_kinds_of_boxes_differ_in_more_than_colour(page):
    page.evaluate("document.getElementById('outcome-0').click()")
    dashes = {
        kind: page.evaluate(
            f"getComputedStyle(document.querySelector('#cards .mark.{kind} .edge')).strokeDasharray"
        )
        for kind in ("truth", "known", "unknown")
    }
    assert len(set(dashes.values())) == 3, json.dumps(dashes)


def test_images_are_filtered_by_whether_the_detector_accepts_them(tab, report: Path, complaints):
    show(tab, report / "gallery.html", "#run=pets-net&split=photos_near")
    everything = shown(tab)
    choose(tab, accepted="rejected")
    rejected = shown(tab)
    assert any("⊘ rejected, uncertainty" in line for line in words(tab))
    choose(tab, accepted="accepted")
    accepted = shown(tab)
    assert sorted(rejected + accepted) == sorted(everything)
    assert rejected
    assert complaints() == []
