"""Every piece of code on the page is run by a test."""

import re
from pathlib import Path

import page


def test_every_piece_of_code_is_run():
    sources = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    calls = re.findall(r'page\.run\("([^"]+)", \w+(?:, (\d+))?\)', sources)
    on_page = {(heading, number) for heading in page.sections() for number in range(len(page.blocks(heading)))}
    assert {(heading, int(number or 0)) for heading, number in calls} == on_page
