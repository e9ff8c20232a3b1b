"""Every piece of code on the page is run by a test."""

import re
from pathlib import Path

import page


def test_every_piece_of_code_is_run():
    sources = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    run = set(re.findall(r'page\.run\("([^"]+)"', sources))
    with_code = {heading for heading in page.sections() if page.blocks(heading)}
    assert run == with_code
