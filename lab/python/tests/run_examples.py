"""Runs the Python examples of pages in Markdown, and notebooks, each from the root of the repository."""

import pathlib
import re
import sys

import nbclient
import nbformat


def cells(path):
    if path.suffix == ".ipynb":
        return nbformat.read(path, as_version=4)
    blocks = re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if not blocks:
        sys.exit(f"{path}: no examples in Python")
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(block) for block in blocks])


for name in sys.argv[1:]:
    book = cells(pathlib.Path(name))
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3").execute()
    print(f"{name}: {sum(cell.cell_type == 'code' for cell in book.cells)} cells ran")
