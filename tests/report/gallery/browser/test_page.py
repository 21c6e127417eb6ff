"""The gallery in a real browser, opened from disk."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from farther.evaluation.results import read_evaluation

STATUS = "document.getElementById('status').textContent"


@pytest.fixture
def page(browser, gallery: Path):
    """The browser with the gallery open.

    It must report no error but the one image that is not on this machine.
    """
    browser.expected.append("tame/1%20%231%25.png")
    show(browser, gallery)
    yield browser
    assert browser.complaints() == []


def show(browser, gallery: Path, view: str = "") -> None:
    """Opens the gallery anew at a view."""
    browser.open("about:blank")
    browser.open(gallery.as_uri() + view)
    browser.until(f"/images?\\.|No image/.test({STATUS})")


def choose(browser, **values: str) -> None:
    """Sets filters as a click does, and waits for the data."""
    for name, value in values.items():
        browser.read(
            f"(() => {{ const one = document.getElementById({name!r}); one.value = {value!r};"
            "one.dispatchEvent(new Event('change', { bubbles: true })); })()"
        )
    browser.until(f"{STATUS} !== 'Loading…'")


def shown(browser) -> list[str]:
    """Names of the images on the page."""
    return browser.read("[...document.querySelectorAll('#cards b')].map((one) => one.textContent)")


def words(browser) -> list[str]:
    """The outcomes on the cards."""
    return browser.read(
        "[...document.querySelectorAll('#cards .event')].map((one) => one.textContent)"
    )


def counts(browser) -> list[str]:
    """The numbers beside found, misclassified, missed and false unknown."""
    return browser.read(
        "[...document.querySelectorAll('#outcomes label:not([hidden]) .count')]"
        ".map((one) => one.textContent)"
    )


def only(browser, *outcomes: int) -> None:
    """Ticks these outcomes and no other."""
    for k in (0, 1, 2, 3, 5):
        browser.read(
            f"document.getElementById('outcome-{k}').checked !== {str(k in outcomes).lower()} && "
            f"document.getElementById('outcome-{k}').click()"
        )


def enlarged(browser) -> str:
    return browser.read(
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
        page.read(STATUS)
        == "4 unknown objects and 1 false unknown in 3 images. Flagged as unknown below τ = 0."
    )


def test_missed_objects_are_told_apart_by_whether_a_proposal_covers_them(browser, proposing):
    show(browser, proposing.write_gallery())
    assert counts(browser) == ["1", "1", "1", "1", "1"]
    names = (
        "[...document.querySelectorAll('#outcomes label:not([hidden]) .name')]"
        ".map((one) => one.textContent.trim())"
    )
    assert browser.read(names) == [
        "found",
        "misclassified",
        "missed, but a proposal covers it, at 0.20 false alarms per ID image",
        "missed, no proposal covers it",
        "false unknown",
    ]
    assert words(browser)[-2:] == [
        "◇ missed, but a proposal covers it: gnu, objectness 0.9",
        "○ missed, no proposal covers it: gnu",
    ]
    only(browser, 5)
    assert shown(browser) == ["w2"]
    assert (
        browser.read("document.querySelector('#cards .mark.proposed text').textContent")
        == "proposal 0.9"
    )
    assert browser.read("location.hash").endswith("%2Ccovered")
    only(browser, 2)
    assert shown(browser) == ["w3"]
    assert browser.read("location.hash").endswith("%2Cuncovered")
    choose(browser, source="none")
    assert shown(browser) == ["w2", "w3"]
    assert browser.read(names) == ["found", "misclassified", "missed", "false unknown"]
    assert browser.complaints() == []


@pytest.mark.parametrize(
    ("outcome", "images"),
    [("missed", ["w2", "w3"]), ("uncovered", ["w3"]), ("found by proposals", ["w2"])],
)
def test_an_address_names_all_missed_objects_or_a_part_of_them(browser, proposing, outcome, images):
    show(browser, proposing.write_gallery(), f"#run=net&split=wild&outcome={outcome}")
    assert shown(browser) == images


def test_the_page_counts_what_the_tables_count(browser, built):
    show(browser, built / "artifacts" / "report" / "gallery.html")
    methods = read_evaluation(built / "artifacts" / "evaluation" / "pets-net.json").methods
    for method, measured in methods.items():
        for split, results in measured.splits.items():
            choose(browser, split=split, method=method)
            names = ("tp_u", "fn_misclassified", "fn_missed", "fp_u")
            assert counts(browser) == [str(results.of_group("open_set")[name]) for name in names], (
                method,
                split,
            )
    assert browser.complaints() == []


def test_images_are_the_original_files_with_boxes_where_they_were_found(page):
    page.until("document.querySelector('#cards img').complete")
    assert page.read("document.querySelector('#cards img').naturalWidth") == 64
    assert page.read("document.querySelector('#cards svg').getAttribute('viewBox')") == "0 0 64 48"
    box = "document.querySelector('#cards .mark.unknown .edge')"
    drawn = [
        page.read(f"Number({box}.getAttribute({name!r}))") for name in ("x", "y", "width", "height")
    ]
    assert drawn == pytest.approx([4, 8, 24, 32], abs=0.01)
    marks = page.read(
        "[...document.querySelectorAll('#cards li:first-child .mark')]"
        ".map((one) => one.className.baseVal)"
    )
    assert marks == ["mark truth", "mark unknown", "mark unknown"]
    alt = page.read("document.querySelector('#cards img').alt")
    assert alt.startswith("Image w1: zebra: ✓ found; cat 90%, score −2: flagged as unknown;")


def test_boxes_that_the_filters_do_not_ask_for_are_faint_and_unnamed(page):
    only(page, 3)
    assert page.read(
        "[...document.querySelectorAll('#cards .mark text')].map((one) => one.textContent)"
    ) == ["? dog 60%"]
    assert page.read("document.querySelectorAll('#cards .mark.other').length") == 2


def test_kinds_of_boxes_can_be_hidden(page):
    style = "getComputedStyle(document.querySelector('#cards .mark.truth')).display"
    assert page.read(style) == "inline"
    page.read("document.getElementById('show-truth').click()")
    assert page.read(style) == "none"


def test_a_file_that_is_elsewhere_is_named(browser, gallery):
    show(browser, gallery, "#run=net&split=tame")
    browser.until("document.querySelector('.missing')")
    text = browser.read("document.querySelector('.missing').textContent")
    assert text == "Not on this machine: ../../my photos/tame/1 #1%.png"
    assert shown(browser) == ["<i>t1</i>", "t2"]
    assert all("ERR_FILE_NOT_FOUND" in one for one in browser.complaints())


def test_another_image_under_the_same_name_is_shown_without_boxes(browser, project, tmp_path):
    shutil.copytree(project.root, tmp_path / "copy", ignore=shutil.ignore_patterns("report"))
    copy = type(project)(tmp_path / "copy")
    folder = copy.roots["photos"] / "wild"
    Image.new("RGB", (48, 64)).save(folder / "0 #1%.png")
    show(browser, copy.write_gallery())
    browser.until("document.querySelector('.missing')")
    text = browser.read("document.querySelector('.missing').textContent")
    assert text == "Shown without boxes: this file has 48 × 64 pixels, the tables say 64 × 48."
    assert browser.read("document.querySelectorAll('#cards li:first-child svg').length") == 0
    assert browser.complaints() == []


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_an_image_that_is_stored_on_its_side_is_shown_upright_with_its_boxes(
    browser, project, tmp_path, format
):
    shutil.copytree(project.root, tmp_path / "copy", ignore=shutil.ignore_patterns("report"))
    copy, exif = type(project)(tmp_path / "copy"), Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (48, 64)).save(copy.roots["photos"] / "wild" / "0 #1%.png", format, exif=exif)
    show(browser, copy.write_gallery())
    browser.until("document.querySelector('#cards img').complete")
    assert browser.read("document.querySelector('#cards img').naturalWidth") == 64
    assert browser.read("document.querySelectorAll('#cards li:first-child svg').length") == 1
    assert browser.complaints() == []


def test_names_are_text_and_never_markup(page):
    choose(page, split="tame")
    assert shown(page)[0] == "<i>t1</i>"
    assert "✓ found: <b>ox</b>, detected as dog 65%, score −3" in words(page)
    assert page.read("document.querySelectorAll('#cards i, #cards b b, .event b').length") == 0


# ID test images


def offered(browser) -> list[str]:
    """The outcomes that can be chosen."""
    return browser.read(
        "[...document.querySelectorAll('#outcomes label:not([hidden]) .name')]"
        ".map((one) => one.textContent.trim())"
    )


def test_id_images_show_what_becomes_of_known_objects(browser, with_known):
    show(browser, with_known.write_gallery(), "#run=net&split=test")
    assert offered(browser) == [
        "correct",
        "wrong class",
        "flagged as unknown",
        "missed",
        "false unknown",
    ]
    assert counts(browser) == ["1", "1", "1", "1", "1"]
    assert words(browser) == [
        "= correct: cat, detected as cat 90%, score 2",
        "↔ wrong class: cat, detected as dog 80%, score 1",
        "? flagged as unknown: cat, detected as cat 70%, score −1",
        "! false unknown: dog 60%, score −2",
        "○ missed: dog",
    ]
    assert browser.read(STATUS).startswith("4 known objects and 1 false unknown in 3 images.")
    choose(browser, method="two")
    assert counts(browser) == ["2", "1", "0", "1", "0"]
    assert browser.complaints() == []


def test_id_images_are_not_among_those_of_all_ood_splits(browser, with_known):
    show(browser, with_known.write_gallery(), "#run=net&split=")
    assert "k1" not in shown(browser)
    assert "correct" not in offered(browser)
    choose(browser, split="distance:near")
    assert "w1" in shown(browser)
    assert "k1" not in shown(browser)


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
def test_an_address_leads_to_known_objects(browser, with_known, view, images):
    show(browser, with_known.write_gallery(), f"#run=net&split=test&{view}")
    assert shown(browser) == images


def test_a_view_of_a_part_of_the_images_says_how_many_the_link_counted(browser, with_known):
    page = with_known.write_gallery()
    show(browser, page, "#run=net&split=test&category=cat&of=57")
    assert browser.read(STATUS).startswith("3 of 57 shown: 3 known objects in 2 images.")
    assert browser.read("location.hash").endswith("&of=57")
    choose(browser, category="dog")
    assert browser.read(STATUS).startswith("1 known object in 1 image.")
    assert "of=" not in browser.read("location.hash")


def test_each_number_of_a_confusion_is_that_of_the_images_behind_it(browser, built):
    report = built / "artifacts" / "report"
    browser.open((report / "detectors" / "pets-net.html").as_uri())
    links = browser.read(
        "[...document.querySelectorAll('.matrix a, .linked a')].map((one) => "
        "[one.href, one.textContent])"
    )
    assert len(links) > 10
    for address, number in links:
        browser.open("about:blank")
        browser.open(address)
        browser.until(f"/images?\\.|No image/.test({STATUS})")
        assert browser.read(STATUS).split()[0] == number, address


def test_a_part_of_a_bar_leads_to_its_images(browser, built):
    page = built / "artifacts" / "report" / "detectors" / "pets-net.html"
    browser.open(page.as_uri())
    bar = "document.querySelector('.chart .mark-rect.role-mark path')"
    browser.until("document.querySelector('.chart details.save')")  # the chart is complete
    # The address is kept instead of opened: a page that is left answers nothing any more.
    browser.read(
        "HTMLAnchorElement.prototype.dispatchEvent = function () { window.opened = this.href; }, 1"
    )
    browser.read(f"{bar}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
    x, y = browser.read(
        f"(({{ x, y, width, height }}) => [x + width / 2, y + height / 2])"
        f"({bar}.getBoundingClientRect())"
    )
    for event in ("mouseMoved", "mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)
    browser.until("window.opened")
    address = browser.read("window.opened")
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
    page.read("document.getElementById('reset').click()")
    assert shown(page) == ["w1", "w2", "w3"]


def test_outcomes_can_be_chosen(page):
    for outcome, images in enumerate([["w1"], ["w2"], ["w2", "w3"], ["w1"]]):
        only(page, outcome)
        assert shown(page) == images
        assert counts(page) == ["1", "1", "2", "1"]
    only(page)
    assert page.read(STATUS).startswith("No image passes these filters.")


def test_each_choice_says_how_many_it_would_leave(page):
    options = "[...document.getElementById({!r}).options].map((one) => one.textContent)"
    assert page.read(options.format("category")) == ["all", "gnu (2)", "zebra (2)"]
    only(page, 1, 3)
    assert page.read(options.format("category")) == ["all", "zebra (1)"]
    assert page.read(options.format("class")) == ["all", "dog (2)", "unknown (flagged) (1)"]
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
    assert page.read("document.getElementById('least').value") == ""
    assert shown(page) == ["w1", "w2", "w3"]


def test_of_many_images_the_page_says_how_many_it_has(browser, project, tmp_path):
    shutil.copytree(project.root, tmp_path / "copy", ignore=shutil.ignore_patterns("report"))
    show(browser, type(project)(tmp_path / "copy").write_gallery(images=2))
    note = browser.read("document.getElementById('left-out').textContent")
    assert (
        note
        == "wild: 2 of 4 images. They are evenly spread over the split; the counts are of these."
    )
    assert shown(browser) == ["w1", "w3"]
    choose(browser, split="tame")
    assert browser.read("document.getElementById('left-out').textContent") == ""


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
    assert page.read(STATUS).startswith("60 unknown objects in 60 images.")
    page.until("document.getElementById('more').getBoundingClientRect().top > innerHeight + 600")
    before = len(shown(page))
    assert 24 <= before < 60
    page.read("document.getElementById('more').scrollIntoView()")
    page.until(f"document.querySelectorAll('#cards li').length > {before}")
    page.until(
        "(document.getElementById('more').scrollIntoView(), document.getElementById('more').hidden)"
    )
    assert shown(page) == [f"m{i:02}" for i in range(60)]


# Keyboard


def test_everything_can_be_done_with_the_keyboard(page):
    page.read("document.getElementById('outcome-3').focus()")
    for _ in range(4):  # three kinds of boxes, then the first card
        page.press("Tab")
    assert page.read("document.activeElement.dataset.place") == "0"
    page.press("ArrowRight")
    page.press("Enter")
    assert enlarged(page) == "w2"
    page.press("ArrowRight")
    assert enlarged(page) == "w3"
    page.press("ArrowRight")  # there is none
    assert enlarged(page) == "w3"
    page.press("ArrowLeft")
    page.press("ArrowLeft")
    assert enlarged(page) == "w1"
    page.press("Escape")
    page.until("!document.getElementById('large').open")
    page.until("document.activeElement.dataset.place === '0'")


def test_arrows_walk_over_rows_and_on_to_cards_that_were_not_drawn(page):
    page.resize(800, 600)
    choose(page, split="many")
    row = page.read(
        "[...document.querySelectorAll('#cards li')]"
        ".filter((one, _, all) => one.offsetTop === all[0].offsetTop).length"
    )
    page.read("document.querySelector('.card').focus()")
    page.press("ArrowDown")
    assert page.read("Number(document.activeElement.dataset.place)") == row
    page.press("ArrowUp")
    page.press("ArrowUp")  # there is none above
    assert page.read("Number(document.activeElement.dataset.place)") == 0
    page.press("End")
    last = page.read("Number(document.activeElement.dataset.place)")
    page.press("ArrowRight")
    assert page.read("Number(document.activeElement.dataset.place)") == last + 1


def test_an_enlarged_image_tells_all_that_is_in_it(page):
    page.read("document.querySelector('.card').click()")
    told = page.read(
        "[...document.querySelectorAll('#large-words li')].map((one) => one.textContent)"
    )
    assert told == [
        "✓ found: zebra, detected as cat 90%, score −2",
        "! false unknown: dog 60%, score −1",
        "zebra: ✓ found",
        "cat 90%, score −2: flagged as unknown",
        "dog 60%, score −1: flagged as unknown (! false unknown)",
    ]
    assert page.read("document.querySelectorAll('#large .mark text').length") == 3
    assert page.read("document.getElementById('large-place').textContent") == "1 of 3 images, wild"


# The address


def test_a_view_can_be_sent_as_its_address(page, gallery):
    only(page, 0, 1)
    choose(page, split="many", method="one", order="falling", least="-10")
    page.read("document.querySelectorAll('.card')[1].click()")
    view, seen = page.read("location.hash"), shown(page)
    assert seen[:2] == ["m59", "m58"]
    show(page, gallery, view)
    page.until("document.getElementById('large').open")
    assert enlarged(page) == "m58"
    assert shown(page) == seen
    assert page.read("location.hash") == view
    assert page.read("document.getElementById('outcome-2').checked") is False


def test_an_address_that_names_what_is_not_there_shows_what_is(page, gallery):
    show(page, gallery, "#run=none&split=none&method=none&category=none&order=none&image=none")
    assert page.read("document.getElementById('run').value") == "net"
    assert page.read(STATUS).startswith("No image passes these filters.")
    assert (
        page.read("document.getElementById('category').selectedOptions[0].textContent")
        == "none (0)"
    )
    page.read("document.getElementById('reset').click()")
    assert len(shown(page)) > 3


def test_another_address_replaces_an_enlarged_image(page):
    page.read("document.querySelectorAll('.card')[0].click()")
    page.read("location.hash = '#run=net&split=wild&method=one&outcome=missed&image=wild/w3'")
    page.until("document.getElementById('large-name').textContent === 'w3'")
    assert enlarged(page) == "w3"
    assert page.read("document.getElementById('large-place').textContent") == "2 of 2 images, wild"
    page.press("Escape")
    page.until("document.activeElement.dataset.place === '1'")
    assert "image" not in page.read("location.hash")


def test_a_link_within_the_page_leaves_the_view_as_it_is(page):
    choose(page, category="gnu")
    page.read("document.querySelector('.skip').click()")
    assert page.read("location.hash") == "#content"
    assert shown(page) == ["w2", "w3"]


def test_data_that_is_not_beside_the_page_is_named(browser, gallery, tmp_path):
    shutil.copytree(gallery.parent, tmp_path / "report")
    (tmp_path / "report" / "gallery" / "net" / "wild.js").unlink()
    browser.open((tmp_path / "report" / gallery.name).as_uri())
    browser.until(f"{STATUS}.includes('net/wild.js is not beside this page')")
    choose(browser, split="many")
    assert browser.read(STATUS).startswith("60 unknown objects")


# Accessibility


def test_an_enlarged_image_is_not_wider_than_a_phone(page):
    page.resize(360, 740)
    page.read("document.querySelector('.card').click()")
    assert page.read("document.getElementById('large').getBoundingClientRect().right") <= 360


def test_kinds_of_boxes_differ_in_more_than_colour(page):
    page.read("document.getElementById('outcome-0').click()")
    dashes = {
        kind: page.read(
            f"getComputedStyle(document.querySelector('#cards .mark.{kind} .edge')).strokeDasharray"
        )
        for kind in ("truth", "known", "unknown")
    }
    assert len(set(dashes.values())) == 3, json.dumps(dashes)


def test_images_are_filtered_by_whether_the_detector_accepts_them(browser, report: Path):
    show(browser, report / "gallery.html", "#run=pets-net&split=photos_near")
    everything = shown(browser)
    choose(browser, accepted="rejected")
    rejected = shown(browser)
    assert any("⊘ rejected, uncertainty" in line for line in words(browser))
    choose(browser, accepted="accepted")
    accepted = shown(browser)
    assert sorted(rejected + accepted) == sorted(everything)
    assert rejected
    assert browser.complaints() == []
