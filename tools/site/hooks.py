"""Hooks of mkdocs: pages that are made from headers, docstrings, records and sources, links from docs to the tree, and maths."""
import ast
import logging
import pathlib
import posixpath
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools/site")]

import c_reference
import plot
from latex2mathml.converter import convert
from mkdocs.structure.files import File

LOG = logging.getLogger("mkdocs.hooks.tigon")
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
LIST = re.compile(r"\s*([-*+]|\d+[.)])\s")
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LANGUAGES = {".h": "c", ".c": "c", ".def": "c", ".cu": "c++", ".cuh": "c++", ".cl": "c", ".py": "python", ".sh": "bash", ".cmake": "cmake"}
PARTS = {"tigon.torch.functional": ("FUNCTIONS", "Functions of tensors."),
         "tigon.torch.nn": ("MODULES", "Modules, with the names of torch.nn's parameters.")}
UNSEARCHED = "---\nsearch: {exclude: true}\n---\n\n"
SOURCES = {"index.md": "README.md"} | {f"project/{name.lower()}": name for name in PROJECT}  # pages that are files outside docs
CSS = """
.md-grid { max-width: 72rem; }
.doc-signature code { white-space: pre-wrap; }
.md-typeset table:not([class]) code { white-space: nowrap; word-break: normal; }
math[display="block"] { font-size: 1.15em; margin: 1em 0; padding: .2em 0; overflow: auto hidden; }
"""


def place(path):
    """The page that shows a path of the tree."""
    name = path.removeprefix("include/tigon/")
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in PROJECT:
        return f"project/{path.lower()}"
    if path.startswith("include/tigon/") and name in c_reference.headers():
        return f"c/{name.replace('/', '-').removesuffix('.h')}.md"
    return {"README.md": "index.md", "include/tigon/op": "c/index.md"}.get(path, f"source/{path}.md")


def target_of(source, target):
    """The path of the tree that a link in file `source` means, or None for another site."""
    return None if ":" in target else posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def relinked(markdown, uri, source):
    """A page with its links to the tree as links to pages, and with the blank lines that Python-Markdown wants before a list or table."""
    found, in_code = [], False
    for line in markdown.splitlines():
        fence = line.lstrip().startswith("```")
        if not (in_code or fence):
            before = found[-1] if found else ""
            starts = LIST.match(line) and not line.startswith(" ") and not LIST.match(before) and not before.startswith(" ")
            if before and (starts or (line.startswith("|") and not before.startswith("|"))):
                found.append("")

            def link(match):
                path = target_of(source, match[1])
                return match[0] if path is None else f"]({relative(uri, place(path))}{match[2] or ''})"

            line = LINK.sub(link, line)
            line = re.sub(r'((?:src|srcset)=")docs/', r"\1", line) if source == "README.md" else line
        elif fence and not in_code and found and found[-1] and not line.startswith(" "):
            found.append("")
        found.append(line)
        in_code ^= fence
    return "\n".join(found)


def relative(uri, target):
    return posixpath.relpath(target, posixpath.dirname(uri) or ".")


def source_page(path):
    """A file of the tree as code, or a folder as a list of names."""
    file = ROOT / path
    if not file.exists():
        LOG.warning("a page links to %s, which does not exist", path)
        body = ""
    elif file.is_dir():
        body = "\n".join(f"- `{one.name}`" for one in sorted(file.iterdir()) if one.name[0] not in "._")
    else:
        body = f"````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}\n````"
    return f"{UNSEARCHED}# {path}\n\n{body}\n"


def listed(name):
    """[(module of tigon.torch.operators, its public names)], in the order of the files."""
    for file in sorted((ROOT / "python/tigon/torch/operators").glob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
                yield f"tigon.torch.operators.{file.stem}", ast.literal_eval(node.value)


def python_pages():
    """{page: its Markdown}, which mkdocstrings fills from docstrings."""
    def members(module, names):
        return f"::: {module}\n    options: {{members: {names}, show_root_heading: false, show_root_toc_entry: false}}\n"

    pages = {}
    for name in ("tigon", "tigon.torch.functional", "tigon.torch.nn", "tigon.torch.optim", "tigon.compat.liger"):
        module = {"tigon": "tigon.huggingface"}.get(name, name)
        body = f"::: {module}\n    options: {{show_root_heading: false, show_root_toc_entry: false}}\n"
        if name in PARTS:
            kind, what = PARTS[name]
            body = f"{what} [python.md](../python.md) is the guide.\n\n" + "\n".join(members(*part) for part in listed(kind) if part[1])
        pages[f"python/{name}.md"] = f"# {name}\n\n{body}"
    return pages


def operators_page():
    """README's table, with links."""
    table = re.search(r"(?<=<!-- tigon list --markdown -->\n).*?(?=<!-- end -->)", (ROOT / "README.md").read_text(), re.S)[0]
    linked = re.sub(r"^\| `(\w+)`", r"| [`\1`](\1.md)", table, flags=re.M)
    return ("# Operators\n\nA tick stands for all dtypes and entries that the exact reference has. A page has an operator's maths, "
            f"accuracy and use.\n\n{linked}")


def plots():
    """{page or picture: its content}."""
    found = {f"plots/operators-{theme}.svg": plot.svg(plot.by_operator, theme) for theme in plot.THEMES}
    parts = ["# Plots", "Where a dot is left of 1 the peer is faster. [Performance](performance.md) has the figures, their records and commands."]
    for heading, name, text in (("All cases", "speed", "A dot is a case, a bar the median."),
                                ("By operator", "plots/operators", "A dot is the median of a peer's cases, a line their range.")):
        parts.append(f"## {heading}\n\n{text}\n\n<picture><source media=\"(prefers-color-scheme: dark)\" srcset=\"{name}-dark.svg\">"
                     f"<img src=\"{name}-light.svg\" alt=\"{heading}\"></picture>")
    return found | {"plots.md": "\n\n".join(parts)}


def generated():
    """{page or file: its content} of what is not in docs."""
    found = {"assets/tigon.css": CSS, "op/index.md": operators_page(), **plots(), **python_pages(), "c/index.md": ""}
    for header in c_reference.headers():
        guide = f"op/{header.removeprefix('op/').removesuffix('.h')}.md"
        uri = place(f"include/tigon/{header}")
        found[uri] = c_reference.page(header, relative(uri, guide) if (DOCS / guide).exists() else None)
    rows = "\n".join(f"- [{header}]({place('include/tigon/' + header)[2:]})" for header in c_reference.headers())
    found["c/index.md"] = f"# C reference\n\nA page for each public header, made from it. `#include <tigon/tigon.h>` has them all.\n\n{rows}\n"
    for uri, name in SOURCES.items():
        found[uri] = (ROOT / name).read_text()
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in DOCS.rglob("*.md")} | {name: (ROOT / name).read_text() for name in SOURCES.values()}
    for source, text in texts.items():
        for match in LINK.finditer(re.sub(r"```.*?```", "", text, flags=re.S)):
            path = target_of(source, match[1])
            if path and place(path).startswith("source/"):
                found.setdefault(place(path), source_page(path))
    return found


def on_config(config):
    config["mdx_configs"]["pymdownx.superfences"] = {"custom_fences": [{"name": "math", "class": "math", "format": maths}]}
    return config


def maths(source, language, css_class, options, md, **_):
    """A fence ```math as MathML, which browsers draw without a script."""
    drawn = convert(source.replace(r"\_", "_"), display="block")
    if "\\" in drawn:
        LOG.warning("a formula has a word that is not known: %s", source)
    return drawn


def on_files(files, config):
    made = generated()
    for uri, content in made.items():
        files.append(File.generated(config, uri, content=content))
    config.nav = [expanded(entry, made, files) for entry in config.nav]
    return files


def expanded(entry, made, files):
    """An entry of nav whose value ends with / has all pages below it: first those that were made, in their order."""
    (name, folder), = entry.items()
    if not isinstance(folder, str) or not folder.endswith("/"):
        return entry
    uris = [uri for uri in made if uri.startswith(folder)]
    uris += sorted({file.src_uri for file in files.documentation_pages() if file.src_uri.startswith(folder)} - set(uris))
    return {name: [uri if folder != "c/" or uri == "c/index.md" else {c_name(uri): uri} for uri in uris]}


def c_name(uri):
    return uri.removeprefix("c/").removesuffix(".md").replace("op-", "op/") + ".h"


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    if uri.startswith("op/") and (DOCS / uri).exists() and "```math" not in markdown:
        LOG.warning("docs/%s has no formula: a fence ```math", uri)
    if uri in SOURCES or (DOCS / uri).exists():
        return relinked(markdown, uri, SOURCES.get(uri, f"docs/{uri}"))
    return markdown
