"""FMIYC's tables, with values worked out by hand."""

from tests.report.papers.conftest import rows_by_table


def test_fmiyc_counts_images_and_those_without_a_detection(sources):
    found = rows_by_table(sources, "fmiyc")
    # Two of the four near photos and one of the two far ones have no detection.
    assert found["Table 1"] == [
        {
            "Model": "net",
            "ID pets: photos near (%)": "50.0",
            "ID pets: photos far (%)": "50.0",
        }
    ]
    assert [(row["OOD"], row["Images"]) for row in found["Table 2"]] == [
        ("photos far", "2"),
        ("photos near", "4"),
    ]
    assert found["Table 3"] == [{"Model": "net", "pets (%)": "100.0"}]


def test_fmiyc_lists_what_the_rules_removed_and_what_they_call_near(sources):
    found = rows_by_table(sources, "fmiyc")
    assert found["Table 4"] == [{"ID dataset": "pets", "ID class": "cat", "Images": "1"}]
    assert found["Table 6"] == [{"ID dataset": "pets", "ID class": "cat", "photos": "Lynx"}]
    assert "Table 5" not in found  # nothing overlaps


def test_fmiyc_has_the_metrics_of_each_split_as_columns(sources):
    found = rows_by_table(sources, "fmiyc")
    (msp,) = [row for row in found["Tables 8 to 13"] if row["Method"] == "MSP"]
    assert msp["photos near AUC ↑ (%)"] == msp["photos near FPR95 ↓ (%)"] == "50.0"
    assert list(found["Tables 14 to 25"][0])[:5] == [
        "Method",
        "photos near nOSE ↓ (%)",
        "photos near AP_U ↑ (%)",
        "photos near P_U ↑ (%)",
        "photos near R_U ↑ (%)",
    ]
