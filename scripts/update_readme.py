"""Write what the README takes from the code: the table of parameters."""

from __future__ import annotations

from pathlib import Path
import sys

from dla_ros.parameters import markdown_table

README = Path(__file__).resolve().parent.parent / 'README.md'
BEGIN, END = '<!-- parameters: begin -->\n', '<!-- parameters: end -->\n'


def updated(text: str) -> str:
    """Return the README with the current table between its marks."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f'{before}{BEGIN}\n{markdown_table()}\n\n{END}{after}'


if __name__ == '__main__':
    README.write_text(updated(README.read_text()))
    sys.exit(0)
