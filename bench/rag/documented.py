"""Documented functions of a source file, and the file without their documentation.

`strip(language, source)` returns the source without documentation and a list of `Item`s: where each function is defined in
that text, its name, what it belongs to, and what its documentation said first. It works on lines and formatted code, not on
a syntax tree, so that it knows nothing that LLMC knows.
"""

import ast
import re
from typing import NamedTuple

SUFFIXES = {
    "python": (".py",), "rust": (".rs",), "javascript": (".js", ".mjs", ".ts", ".tsx", ".jsx"), "go": (".go",),
    "java": (".java",), "c": (".c", ".h"),
}
MAX_BODY_LINES = 80


class Item(NamedTuple):
    line: int
    name: str
    scope: str
    doc: str


def first_paragraph(text):
    text = re.split(r"\n\s*\n", text.strip())[0]
    return " ".join(text.split())


def same_doc(text):
    """The form in which two documentations count as one."""
    return " ".join(re.findall(r"\w+", text.lower()))


def without_name(name, text):
    """The text without the function's name in front, as Go and C projects write it: who asks does not know it."""
    return re.sub(rf"^\W*{re.escape(name)}\b(\(\))?[\s:,-]*", "", text)


def is_question(name, text):
    words = re.findall(r"[A-Za-z]{2,}", text)
    return len(words) >= 4 and not name.startswith(("_", "test")) and len(text) < 400


def body(lines, line, limit=MAX_BODY_LINES):
    """The lines of the function that starts at `line` (from 1), by indentation."""
    start = line - 1
    depth = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while end < len(lines) and end - start < limit:
        text = lines[end]
        inner = text.strip()
        if inner and len(text) - len(text.lstrip()) <= depth:
            if inner[0] in "})]":
                end += 1
                if not inner.rstrip().endswith("{"):
                    break
                continue
            if inner[0] != "{" and not (end == start + 1 and depth == 0 and inner.startswith(("(", "where"))):
                break
        end += 1
    return lines[start:end]


def strip(language, source):
    if language == "python":
        return strip_python(source)
    return strip_lines(language, source)


def strip_python(source):
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    gone, found = set(), []

    def visit(node, scope):
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                take(child, scope)
                inner = [*scope, child.name]
            visit(child, inner)

    def take(node, scope):
        body = node.body
        if not (body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
                and isinstance(body[0].value.value, str)) or len(body) == 1:
            return
        doc = body[0]
        gone.update(range(doc.lineno, doc.end_lineno + 1))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            text = without_name(node.name, first_paragraph(doc.value.value))
            found.append((node.lineno, node.name, " ".join(scope), text))

    if tree.body and isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Constant) \
            and isinstance(tree.body[0].value.value, str) and len(tree.body) > 1:
        gone.update(range(tree.body[0].lineno, tree.body[0].end_lineno + 1))
    visit(tree, [])
    kept, place = [], {}
    for number, line in enumerate(lines, 1):
        if number not in gone:
            kept.append(line)
            place[number] = len(kept)
    items = [Item(place[line], name, scope, doc) for line, name, scope, doc in found if line in place]
    return "".join(kept), sorted(items)


KEYWORDS = {"if", "for", "while", "switch", "return", "catch", "else", "do", "new", "function", "sizeof", "throw", "case",
            "typedef", "define", "await", "super", "this", "constructor", "defined", "synchronized", "try"}

FUNCTIONS = {
    "rust": [r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:default\s+|const\s+|async\s+|unsafe\s+|extern\s+\"C\"\s+)*fn\s+(\w+)"],
    "go": [r"^func\s+(?:\([^)]*\)\s*)?(\w+)"],
    "java": [r"^\s+(?:(?:public|protected|private|static|final|abstract|synchronized|default)\s+)*(?:<[^>]+>\s+)?"
             r"[\w.<>\[\],?&]+(?:\s*[<>\[\],?&]\s*[\w.<>\[\],?& ]+)?\s+(\w+)\s*\([^;]*$"],
    "c": [r"^(?:[A-Za-z_][\w\s\*]*?[\s\*])?(\w+)\s*\([^;]*$"],
    "javascript": [
        r"^\s*(?:export\s+)?(?:default\s+)?(?:async\s+)?function\s*\*?\s*(\w+)",
        r"^\s*(?:export\s+)?(?:const|let|var)\s+(\w+)\s*(?::[^=]+)?=\s*(?:async\s*)?"
        r"(?:function|(?:\([^()]*\)|\w+)\s*(?::[^=]+)?=>|\([^)]*$)",
        r"^\s*[\w$.]+\.(\w+)\s*=\s*(?:async\s*)?function",
        r"^\s+(\w+)\s*:\s*(?:async\s*)?function",
        r"^\s+(?:(?:public|private|protected|static|readonly|async|override|get|set)\s+)*\*?(\w+)\s*(?:<[^(]*>)?"
        r"\(.*[{(,]\s*$",
    ],
}
FUNCTIONS = {language: [re.compile(one) for one in all] for language, all in FUNCTIONS.items()}
SCOPES = {
    "rust": re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(impl\b[^{]*|trait\s+\w+|mod\s+\w+)"),
    "java": re.compile(r"^\s*(?:[\w@]+\s+)*(?:class|interface|enum|record)\s+(\w+)"),
    "javascript": re.compile(r"^\s*(?:export\s+)?(?:default\s+)?(?:abstract\s+)?class\s+(\w+)"),
}
GO_RECEIVER = re.compile(r"^func\s+\(\s*\w*\s*\*?([\w]+)")


def function_name(language, line):
    for pattern in FUNCTIONS[language]:
        match = pattern.match(line)
        if match and match.group(1) not in KEYWORDS and line.split("(")[0].split()[0] not in KEYWORDS - {"function"}:
            return match.group(1)
    return None


C_FUNCTION = re.compile(r"^(?:[A-Za-z_][\w\s\*]*?[\s\*])?(\w+)\s*\(")


def c_functions(source):
    """(name, line, whether only its own file sees it) of each function that a C file declares or defines."""
    above = ""
    for number, line in enumerate(source.splitlines(), 1):
        match = C_FUNCTION.match(line)
        name = match and match.group(1)
        first = line.split("(")[0].split()[:1]
        # The type may have a line of its own.
        typed = match and (line[:match.start(1)].strip() or TYPE_LINE.match(above))
        if typed and name not in KEYWORDS and first[0] not in KEYWORDS:
            of_file = "static" in (above if TYPE_LINE.match(above) else "").split() + line[:match.start(1)].split()
            yield name, number, of_file
        above = line.rstrip()


def strip_lines(language, source):
    kept, found, doc, scopes = [], [], [], []
    held = []  # Comment lines that are documentation only if a function follows.
    lines = source.splitlines(keepends=True)
    at = 0
    while at < len(lines):
        line = lines[at]
        text = line.strip()
        block, end = comment_at(language, lines, at)
        if block is not None:
            if always_documentation(language, text):
                if text.startswith("//!"):
                    at = end
                    continue
                doc = (doc if language == "rust" else []) + block
            else:
                kept.extend(held)
                held, doc = lines[at:end], block
            at = end
            continue
        if not text and doc and language == "javascript":
            kept.append(line)
            at += 1
            continue
        if between(language, text):
            # An attribute or annotation stands between documentation and definition.
            (held if held else kept).append(line)
            at += 1
            continue
        name = function_name(language, line) if text else None
        if name and doc:
            kept.extend(one for one in held if between(language, one.strip()))
            kept.append(line)
            paragraph = without_name(name, clean("\n".join(doc)))
            found.append(Item(len(kept), name, scope_of(language, line, scopes), paragraph))
        else:
            kept.extend(held)
            kept.append(line)
        note_scope(language, line, scopes)
        held, doc = [], []
        at += 1
    kept.extend(held)
    return "".join(kept), found


def always_documentation(language, text):
    if language == "rust":
        return text.startswith(("///", "//!"))
    return language in ("java", "javascript") and text.startswith("/**")


def comment_at(language, lines, at):
    """The text of the comment that starts here and the line behind it."""
    text = lines[at].strip()
    if language == "rust":
        if text.startswith(("///", "//!")):
            return [text[3:].strip()], at + 1
        return None, at
    if text.startswith("/*") and language != "go":
        if language == "c" and not lines[at].startswith("/*"):
            return None, at
        found, end = [], at
        while end < len(lines):
            one = lines[end].strip()
            closed = "*/" in one
            found.append(re.sub(r"^/?\*+!?<?", "", re.sub(r"\*+/.*$", "", one)).strip())
            end += 1
            if closed:
                if one.split("*/", 1)[1].strip():
                    return None, at
                return found, end
        return None, at
    if text.startswith("//") and (language == "go" or language == "c" and lines[at].startswith("//")):
        if language == "go" and lines[at][0] != "/":
            return None, at
        found, end = [], at
        while end < len(lines) and lines[end].startswith("//"):
            found.append(lines[end].strip()[2:].strip())
            end += 1
        return found, end
    return None, at


TYPE_LINE = re.compile(r"^(?:static|extern|inline|const|unsigned|struct|[A-Za-z_]\w*)[\w\s\*]*$")


def between(language, text):
    if language == "rust":
        return text.startswith(("#[", "#!["))
    if language in ("java", "javascript"):
        return text.startswith("@")
    if language == "c":
        return bool(TYPE_LINE.match(text)) and text.split()[0] not in ("else", "do", "return")
    return False


def note_scope(language, line, scopes):
    pattern = SCOPES.get(language)
    match = pattern.match(line) if pattern else None
    if match:
        depth = len(line) - len(line.lstrip())
        while scopes and scopes[-1][0] >= depth:
            scopes.pop()
        scopes.append((depth, re.sub(r"<[^<>]*>", "", match.group(1)).replace("impl", "").strip()))


def scope_of(language, line, scopes):
    if language == "go":
        match = GO_RECEIVER.match(line)
        return match.group(1) if match else ""
    depth = len(line) - len(line.lstrip())
    return " ".join(name for at, name in scopes if at < depth)


def clean(doc):
    """The first paragraph without markup."""
    doc = re.split(r"\n\s*@(?:param|return|since|throws|see|author|private|public|const|type|template|memberof|static)", "\n" + doc)[0]
    doc = re.sub(r"(?m)^\s*@(?:category|module|name|pure|kind|group)\b.*$", "", doc)
    doc = re.sub(r"(?m)^\s*[\\@](?:brief|fn|internal|name|function|method|description|summary|desc)\b(?:\s+[\w.#~]+\s*$)?", "", doc)
    doc = first_paragraph(doc)
    doc = re.sub(r"\{@(?:link|code|linkplain)\s+#?([^}]*)\}", r"\1", doc)
    doc = re.sub(r"</?\w+[^>]*>", " ", doc)
    doc = re.sub(r"\[`?([^\]`]*)`?\](\([^)]*\)|\[[^\]]*\])?", r"\1", doc)
    return " ".join(doc.replace("-----", "").split())
