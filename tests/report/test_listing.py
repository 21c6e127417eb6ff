"""Plain tables, and values as the report prints them."""

from farther.report.listing import Listing


def test_numbers_are_flush_right_and_fractions_below_per_cent_are_printed_so():
    rows = [
        {"Name": "a", "Share (%)": 0.25, "Mean": 0.25, "Images": 1234},
        {"Name": "b", "Share (%)": None, "Mean": 2.0, "Images": 5},
    ]
    listing = Listing.from_rows("Shares.", rows)
    assert listing.heads == [("Name", False), ("Share (%)", True), ("Mean", True), ("Images", True)]
    first, second = listing.rows
    assert [text for text, _ in first] == ["a", "25.0", "0.250", "1,234"]
    assert [text for text, _ in second] == ["b", "—", "2.000", "5"]


def test_text_columns_are_flush_right_where_they_are_named():
    listing = Listing.from_rows(
        "Intervals.", [{"Name": "a", "Value": "1.0 to 2.0"}], numbers=["Value"]
    )
    assert listing.heads == [("Name", False), ("Value", True)]


def test_rows_from_few_objects_or_images_are_grey_with_the_reason():
    rows = [
        {"Split": "near", "Objects": 29, "Images": 12},
        {"Split": "far", "Objects": 30, "Images": 30},
        {"Split": "farther", "Objects": None, "Images": 30},
    ]
    assert Listing.from_rows("Splits.", rows, few=30).reasons == [
        "from 29 objects and 12 images: fewer than report.few = 30",
        "",
        "",
    ]
    assert Listing.from_rows("Splits.", rows).reasons == ["", "", ""]


def test_a_heading_that_a_row_lacks_has_no_value_there():
    listing = Listing.from_rows("Rows.", [{"a": 1}, {"a": 2, "b": "x"}])
    assert list(listing.rows) == [[("1", True), ("—", False)], [("2", True), ("x", False)]]
    assert len(listing) == 2
