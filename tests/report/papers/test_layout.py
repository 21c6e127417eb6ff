"""The YAML files of the papers."""

from typing import get_args, get_type_hints

import pytest
import yaml
from tests.report.papers.conftest import LAYOUT

from farther.errors import DataError
from farther.report.papers.layout import PAPERS, parse_paper, read_paper
from farther.report.settings import ReportSettings


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_has_tables_each_with_its_own_number(name):
    paper = read_paper(name)
    stems = [table.stem for table in paper.tables]
    assert len(stems) == len(set(stems)) > 2
    assert all(paper.absent.values())


def test_the_section_report_names_these_papers():
    (entry,) = get_args(get_type_hints(ReportSettings)["papers"])
    assert sorted(get_args(entry)) == sorted(PAPERS)


def paper_with(**changed):
    table = {**LAYOUT, **changed}
    paper = {"title": "P", "citation": "A, 2020: B. arXiv:2000.00001", "tables": [table]}
    return yaml.safe_dump({**paper, "absent": {}})


@pytest.mark.parametrize(
    ("changed", "field", "problem"),
    [
        ({"colums": "x"}, "tables.0.colums", "Extra inputs"),
        ({"select": []}, "tables.0.select", "at least 1"),
        ({"select": [{"metrics": ["auroc"], "split": ["id"]}]}, "tables.0.select.0.split", "Extra"),
        ({"select": [{"metrics": ["aurok"]}]}, "tables.0", "unknown metric 'aurok'"),
        ({"rows": {"metod": "Method"}}, "tables.0", "unknown label 'metod'"),
        ({"column": "{spilt}"}, "tables.0", "unknown label 'spilt'"),
        ({"decimals": {"auroc": "1"}}, "tables.0.decimals.auroc", "found '1'"),
    ],
)
def test_what_a_layout_cannot_have_is_named_with_file_and_field(changed, field, problem):
    with pytest.raises(DataError) as error:
        parse_paper(paper_with(**changed), "p.yaml")
    assert (error.value.file, error.value.field) == ("p.yaml", field)
    assert problem in error.value.problem


def test_a_label_may_be_a_key_of_the_part_or_one_that_a_selection_makes():
    selection = {"metrics": ["f"], "part": {"beta": []}, "labels": {"measure": "F{beta}"}}
    text = paper_with(select=[selection], rows={"beta": "β"}, column="{measure}")
    (table,) = parse_paper(text, "p.yaml").tables
    assert table.fill("{beta} {measure}", {"beta": "1", "measure": "F"}) == "1 F"
