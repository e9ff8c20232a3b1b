"""Calls `actzip plan` as a user does: reports in, tables, JSON and pictures out."""

import json
import xml.etree.ElementTree

import pytest
from test_cli import run

SITES = [
    {"site": "conv1: convolution.input", "shape": [64, 16, 32, 32], "kind": "encoded", "codec": "rotated:2", "sensitivity": 50.0},
    {"site": "conv2: convolution.input", "shape": [64, 16, 32, 32], "kind": "encoded", "codec": "rotated:2:mask", "sensitivity": 2.0},
    {"site": "fc <&>: addmm.mat1", "shape": [64, 4096], "kind": "encoded", "codec": "affine:8:nearest", "sensitivity": 0.001},
]
OTHERS = [
    {"site": "relu.result", "shape": [64, 4096], "kind": "encoded", "codec": "mask", "bytes_after": 32768},
    {"site": "conv1: relu.result", "shape": [64, 4096], "kind": "shared", "bytes_after": 0},
    {"site": "norm: aux0", "shape": [64], "kind": "as is", "bytes_after": 256},
    {"site": "attention.result", "shape": [64, 64], "kind": "recomputed", "bytes_after": 0},
    {"site": "conv3: convolution.input", "shape": [64, 64], "kind": "derived", "bytes_after": 0},
    {"site": "view.self", "shape": [64, 64], "kind": "shape only", "bytes_after": 0},
    {"site": "new.self", "shape": [64, 64], "kind": "a word of later sessions", "bytes_after": 0},
]


def write_report(folder, sites):
    """Writes a report as Report.to_json() does, reduced to what a plan reads."""
    path = folder / "report.json"
    filled = [{"dtype": "f32", "bytes_before": 0, "bytes_after": 0, **site} for site in sites]
    path.write_text(json.dumps({"preset": "default", "sites": filled}))
    return path


def plan_of(report, *budget):
    status, text, errors = run("plan", report, *budget, "--json", "-")
    assert status == 0, errors
    return json.loads(text)


@pytest.fixture
def report(tmp_path):
    return write_report(tmp_path, SITES + OTHERS)


def test_bits_go_where_the_sensitivity_is(report):
    plan = plan_of(report, "--bits", 2)
    assert [site["site"] for site in plan["sites"]] == [site["site"] for site in SITES]
    bits = [site["bits"] for site in plan["sites"]]
    assert bits == [3, 1, 2]  # the last site is small: what is left over suffices for a second bit
    assert plan["average_bits"] <= 2 and plan["optimal"]
    assert plan["sites"][1]["codec"] == f"rotated:{bits[1]}:mask"
    assert plan["variance"] == pytest.approx(sum(site["variance"] for site in plan["sites"]))
    assert plan["variance"] < plan["uniform_variance"]
    assert plan["bytes"] == sum(site["bytes"] for site in plan["sites"])
    for site in plan["sites"]:
        assert site["variance"] == pytest.approx(site["sensitivity"] * site["error"])
        assert not site["sensitivity_assumed"]


def test_the_table_has_every_site_and_the_totals(report):
    status, text, errors = run("plan", report, "--bits", 2)
    assert (status, errors) == (0, "")
    for site in SITES:
        assert site["site"] in text
    for site in OTHERS:
        assert site["site"] not in text
    assert "2097152" not in text and "1048576" in text  # elements
    assert "budget: 2 bits an element" in text
    assert "uniform bits at the same bytes" in text
    assert f"not planned: {len(OTHERS)} sites" in text
    assert "no sensitivity" not in text


def test_a_budget_in_bytes_is_for_all_that_is_kept(report):
    everything = plan_of(report, "--bytes", "1GiB")
    assert [site["codec"] for site in everything["sites"]] == ["as is"] * 3
    assert everything["variance"] == 0
    some = plan_of(report, "--bytes", "600KiB")
    assert some["other_bytes"] == 32768 + 256
    assert some["bytes"] + some["other_bytes"] <= 600 * 1024
    assert some["bytes"] > 0.95 * (600 * 1024 - some["other_bytes"])


def test_sites_without_sensitivity_get_the_mean_and_the_output_says_so(tmp_path):
    sites = [{**SITES[0]}, {**SITES[2]}]
    del sites[1]["sensitivity"]
    path = write_report(tmp_path, sites)
    plan = plan_of(path, "--bits", 2)
    assert [site["sensitivity_assumed"] for site in plan["sites"]] == [False, True]
    per_element = [site["sensitivity"] / site["elements"] for site in plan["sites"]]
    assert per_element[1] == pytest.approx(per_element[0])
    assert "1 of 2 sites have no sensitivity" in run("plan", path, "--bits", 2)[1]


def test_without_any_sensitivity_bits_are_uniform(tmp_path):
    sites = [{key: site[key] for key in ("site", "shape", "kind", "codec")} for site in SITES]
    plan = plan_of(write_report(tmp_path, sites), "--bits", 2)
    assert {site["bits"] for site in plan["sites"]} == {2}
    assert plan["variance"] == pytest.approx(plan["uniform_variance"])


def test_elements_of_an_expanded_tensor_are_those_that_are_kept(tmp_path):
    path = write_report(tmp_path, [{**SITES[0], "bytes_before": 4096 * 4}])
    assert plan_of(path, "--bits", 2)["sites"][0]["elements"] == 4096


def test_files_are_complete_and_the_picture_is_svg(report, tmp_path):
    before = set(tmp_path.iterdir())
    table, picture = tmp_path / "plan.json", tmp_path / "plan.svg"
    status, text, errors = run("plan", report, "--bits", 1.5, "--json", table, "--svg", picture)
    assert status == 0, errors
    assert "predicted variance" in text and "plan.svg" in errors
    assert set(tmp_path.iterdir()) - before == {table, picture}
    assert json.loads(table.read_text())["average_bits"] <= 1.5
    root = xml.etree.ElementTree.parse(picture).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == space + "svg"
    bars = [rect for rect in root.iter(space + "rect") if rect.find(space + "title") is not None]
    assert [bar.find(space + "title").text.split(": rotated")[0] for bar in bars] == [site["site"] for site in SITES]
    points = root.find(space + "polyline").get("points").split()
    assert len(points) == len(SITES)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "REPORT"),
        (["report.json"], "--bits 2 or --bytes 4GiB"),
        (["report.json", "--bits", "2", "--bytes", "1GiB"], "choose one"),
        (["report.json", "--bits", "-1"], "--bits"),
        (["report.json", "--bits", "two"], "--bits"),
        (["report.json", "--bytes", "4 apples"], "--bytes"),
        (["report.json", "--bits", "2", "--json", "x", "--svg", "x"], "same file"),
    ],
)
def test_wrong_usage_is_explained_with_status_2(args, says):
    status, text, errors = run("plan", *args)
    assert (status, text) == (2, "")
    assert errors.startswith("actzip: ")
    assert says in errors.splitlines()[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no JSON"),
        ("[]", "no list 'sites'"),
        ('{"sites": 3}', "no list 'sites'"),
        ('{"sites": []}', "nothing to plan"),
        ('{"sites": [3]}', "site 0: it is no object"),
        ('{"sites": [{}]}', "site 0: 'kind' is missing"),
        ('{"sites": [{"kind": "encoded", "codec": "zip:2"}]}', "'zip'"),
        ('{"sites": [{"kind": "encoded", "codec": "rotated"}]}', "'site' is missing"),
        ('{"sites": [{"kind": "encoded", "codec": "mask", "bytes_after": -1}]}', "'bytes_after' is -1"),
        ('{"sites": [{"kind": "encoded", "codec": "mask", "bytes_after": 18446744073709551615}]}', "(allowed: 0 to 2^54 bytes)"),
        ('{"sites": [{"codec": ' + "[" * 200000 + "]" * 200000 + "}]}", "nested deeper than 64"),
        ('{"sites": [' + '{"a":' * 200000 + "1" + "}" * 200000 + "]}", "nested deeper than 64"),
    ],
)
def test_a_bad_report_is_named_with_what_is_wrong(tmp_path, text, says):
    path = tmp_path / "bad.json"
    path.write_text(text)
    status, output, errors = run("plan", path, "--bits", 2, "--json", tmp_path / "plan.json")
    assert (status, output) == (1, "")
    assert errors.startswith("actzip: ") and "bad.json" in errors and says in errors
    assert list(tmp_path.iterdir()) == [path]  # nothing half-written


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sensitivity": -1}, "'sensitivity' is -1 (allowed: 0 to 1e100)"),
        ({"sensitivity": "much"}, "'sensitivity' is \"much\""),
        ({"dtype": "f8"}, "f8"),
        ({"dtype": "i64"}, "i64"),
        ({"shape": [0, 5]}, "'shape' is [0,5]"),
        ({"shape": [1 << 40, 1 << 40]}, "'shape' is"),
        ({"shape": [1e300]}, "'shape' is [1e+300]"),
        ({"shape": [1 << 63, 2]}, "'shape' is"),
        ({"bytes_before": (1 << 64) - 1}, "(allowed: 0 to 2^54 bytes)"),
    ],
)
def test_a_bad_site_is_named_with_what_is_wrong(tmp_path, change, says):
    status, _, errors = run("plan", write_report(tmp_path, [{**SITES[0], **change}]), "--bits", 2)
    assert status == 1
    assert errors.startswith("actzip: ") and says in errors


def test_a_report_may_lie_under_any_name(report):
    odd = report.with_name(b"\xff.json".decode(errors="surrogateescape"))
    report.rename(odd)
    assert plan_of(odd, "--bits", 2)["sites"]


def test_a_missing_report_is_named(tmp_path):
    status, _, errors = run("plan", tmp_path / "none.json", "--bits", 2)
    assert status == 1
    assert "cannot read" in errors and "none.json" in errors


def test_a_budget_that_cannot_be_met_says_what_is_needed(report):
    status, _, errors = run("plan", report, "--bits", 0.5)
    assert status == 1
    assert "0.5 bits an element are too few: the cheapest choices need 1" in errors
    status, _, errors = run("plan", report, "--bytes", "1KiB")
    assert status == 1
    assert "1024 bytes are too few: sites that are not planned keep 33024" in errors
    status, _, errors = run("plan", report, "--bytes", "64KiB")
    assert status == 1
    assert "the cheapest choices need" in errors
