"""An mkdocs hook for notebook pages: remove external scripts (MathJax, Mermaid) and fix links between notebooks."""

import re
from typing import Any

SCRIPT = re.compile(r"<script\b[^>]*>.*?</script>", re.DOTALL)
ELSEWHERE = ("mathjax", "mermaid", "cdnjs.", "unpkg.")
NOTEBOOK_LINK = re.compile(r'href="([\w/-]+)\.ipynb(#[\w-]*)?"')


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Remove scripts of other servers from a notebook's page and link its neighbours."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    html = SCRIPT.sub(lambda found: "" if any(word in found[0].lower() for word in ELSEWHERE) else found[0], html)
    return NOTEBOOK_LINK.sub(r'href="\1.html\2"', html)
