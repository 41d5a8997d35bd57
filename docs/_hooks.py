"""What the site needs beyond the generator: pages that lie elsewhere in the repository, and links to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from numscope.lazy import homes_of

ROOT = Path(__file__).resolve().parent.parent
BROUGHT = (
    *("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/results/*.md", "examples/*.*"),
    *("benchmarks/first_contact/README.md", "benchmarks/first_contact/*/SET.md", "benchmarks/first_contact/*/first.md"),
)
_NAMES = re.compile(r"<!-- public names: ([\w.]+) -->")
_MODULES = re.compile(r"<!-- modules: ([\w.]+) -->")
_READERS_SAY = re.compile(r"<!-- readers say: (.+) -->")
_OPTIONS = re.compile(r"^\| `(--[\w-]+)", re.MULTILINE)
_OUTSIDE = re.compile(r"(\]\((?:\.\./)*)\.\./(README\.md|benchmarks/results|benchmarks/first_contact|[A-Z]+\.md|examples/)")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the repository's other documents: results of benchmarks, the changelog, examples."""
    for pattern in BROUGHT:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    index = "# Figures\n\nEach is made by the script of its name in `benchmarks/`.\n\n" + "".join(
        f"- [{path.stem}]({path.name})\n" for path in sorted((ROOT / "benchmarks/results").glob("*.md"))
    )
    files.append(File.generated(config, "benchmarks/results/index.md", content=index))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """In the repository a page's neighbours are in the folder above ``docs``; on the site they are beside it."""

    def within(link: re.Match[str]) -> str:
        up, target = link[1], link[2]
        if target == "README.md":
            return f"{up}index.md"
        return f"{up}benchmarks/results/index.md" if target == "benchmarks/results" and markdown[link.end()] == ")" else up + target

    def names(place: re.Match[str]) -> str:
        homes = homes_of(str(ROOT / "src" / place[1].replace(".", "/") / "__init__.py"))
        return "\n".join(
            f"::: {home}.{name}"
            for name, home in sorted(homes.items(), key=lambda item: (not item[0][0].islower(), item))
            if not name.startswith("_")
        )

    def modules(place: re.Match[str]) -> str:
        folder = ROOT / "src" / place[1].replace(".", "/")
        found = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
        return "\n".join(f"::: {place[1]}.{name}" for name in sorted(found) if not name.startswith("_"))

    said = [word for words in _READERS_SAY.findall(markdown) for word in words.split(", ")]
    page.meta["tags"] = said + _OPTIONS.findall(markdown)  # where the search looks first
    if not page.is_homepage and (not page.ancestors or page.ancestors[-1].title in ("Reference", "Project")):
        page.meta["search"] = {"boost": 0.1}  # and these last: who looks for a word wants it explained
    if page.file.src_uri in BROUGHT:
        markdown = markdown.replace("](docs/", "](")
    return _OUTSIDE.sub(within, _MODULES.sub(modules, _NAMES.sub(names, markdown)))


def on_page_content(html: str, *, page: Any, config: Any, files: Files) -> str:
    """A bar within code within a table is written with a backslash, which the generator keeps."""
    return re.sub(r"<code>[^<]*</code>", lambda code: code[0].replace("\\|", "|"), html)
