"""README.md's Python runs as written, and prints what stands under it."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_python(capsys):
    code, wanted = re.search("```python\n(.*?)```\n```text\n(.*?)```", README.read_text(), re.S).groups()
    exec(code, {})
    assert capsys.readouterr().out == wanted
