"""Pages of the C reference, made from the public headers by libclang: the contract, then each declaration with its comment."""
import functools
import html
import pathlib
import re
import subprocess

from clang import cindex

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include/tigon"
KINDS = {cindex.CursorKind.FUNCTION_DECL, cindex.CursorKind.TYPEDEF_DECL, cindex.CursorKind.MACRO_DEFINITION}
NOT_SHOWN = re.compile(r"TIGON_\w+_H|TIGON_API")  # include guards, visibility
FORMULA = re.compile(r"\S.* (\+?=|<-) |.*\S {3,}\S")  # or a line in columns


def headers():
    """Paths below include/tigon, in the order in which tigon.h includes them, tigon.h first."""
    included = re.findall(r"#include <tigon/(.*)>", (INCLUDE / "tigon.h").read_text())
    return ["tigon.h", *included]


def comment_text(raw):
    """A comment's lines, without its signs and its common indent."""
    inside = re.sub(r"^/\*+ ?|\s*\*/$", "", raw.strip())
    return [re.sub(r"^\s*\* ?", "", line) if i else line for i, line in enumerate(inside.splitlines())]


def escaped(text):
    return re.sub(r"([\\`*_\[\]#])", r"\\\1", html.escape(text, quote=False))


def prose(lines):
    """Markdown of a comment: paragraphs, and as code the lines that are formulas, columns or programs."""
    found, code, sentence = [], [], []

    def end():
        if code:
            indent = min(len(line) - len(line.lstrip()) for line in code if line.strip())
            found.append("```text\n" + "\n".join(line[indent:] for line in code).rstrip() + "\n```")
        if sentence:
            found.append(escaped(" ".join(sentence)))
        code.clear()
        sentence.clear()

    for line in lines:
        text, indented = line.strip(), line.startswith("  ")
        if not text:
            if code:
                code.append("")
            else:
                end()
        elif indented and (code or FORMULA.match(text) or not sentence or sentence[-1].endswith(":")):
            if not code:
                end()
            code.append(line)
        else:
            if code or (sentence and not indented and re.match(r"[A-Za-z ]+: ", text)):
                end()
            sentence.append(text)
    end()
    return "\n\n".join(found)


@functools.cache
def unit():
    """tigon.h, parsed with the compiler's own headers."""
    builtin = subprocess.run(["cc", "-print-file-name=include"], capture_output=True, text=True, check=True).stdout.strip()
    arguments = ["-std=c11", "-fparse-all-comments", f"-I{INCLUDE.parent}", "-isystem", builtin]
    parsed = cindex.Index.create().parse(str(INCLUDE / "tigon.h"), arguments, options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
    faults = [str(fault) for fault in parsed.diagnostics if fault.severity >= cindex.Diagnostic.Error]
    if faults:
        raise RuntimeError(f"include/tigon: {faults[0]}")
    return parsed


def declarations(header):
    """(name, its source, its comment's lines) in the header's order."""
    path = INCLUDE / header
    text = path.read_text()
    found = []
    for cursor in unit().cursor.get_children():
        if cursor.kind in KINDS and cursor.location.file and cursor.location.file.name == str(path) and not NOT_SHOWN.fullmatch(cursor.spelling):
            start, end = cursor.extent.start.offset, cursor.extent.end.offset
            source = text.encode()[start:end].decode()
            if cursor.kind == cindex.CursorKind.MACRO_DEFINITION:
                source = "#define " + source
            else:
                source = re.sub(r"\s*\{.*\}$", "", source, flags=re.S) if cursor.kind == cindex.CursorKind.FUNCTION_DECL else source
                source = source.removeprefix("TIGON_API ") + ";"
            found.append((start, cursor.spelling, source, comment_text(cursor.raw_comment or "")))
    return [one[1:] for one in sorted(found)]


def page(header, guide):
    """The page of a header; `guide` is the path of its operator's page, or None."""
    first = re.match(r"/\*.*?\*/", (INCLUDE / header).read_text(), re.S)
    parts = [f"# {header.rpartition('/')[2]}", f"`#include <tigon/{header}>`" + (f" · [guide]({guide})" if guide else "")]
    parts.append(prose(comment_text(first[0])))
    for name, source, comment in declarations(header):
        parts += [f"## {name}", prose(comment), f"```c\n{source}\n```"]
    return "\n\n".join(part for part in parts if part) + "\n"
