"""Names from models and files in Markdown, shown as they are, and a finding in a few lines of it."""

from __future__ import annotations

from numscope.records.finding import Finding
from numscope.records.words import escape


def text(content: str) -> str:
    """Text that Markdown shows as it is."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~$&!" else c for c in content)


def code(content: str) -> str:
    """Text as code; a table's cell ends at no bar in it."""
    return f"`{content.replace('`', chr(0x2019)).replace('|', chr(0xA6))}`" if content else ""


def finding_markdown(finding: Finding, report: str) -> str:
    """A finding: a heading, where, why and what to do, then the report as the terminal has it."""
    when = f"step {finding.step}, batch {finding.batch}, {finding.phase.value}, rank {finding.rank}"
    lines = [f"### {finding.kind.value} in {code(escape(str(finding.site)))}", "", when, ""]
    lines += [f"- **Note:** {text(escape(finding.note))}"] if finding.note else []
    c = finding.culprit
    if c is None:
        lines.append(f"- **Operation unknown:** {text(escape(finding.replay))}")
    else:
        lines.append(f"- **Operation:** {code(escape(c.op))} ({c.phase.value})" + (f" in {code(escape(c.module))}" if c.module else ""))
        lines += [f"- **Line:** {code(escape(f'{c.file}:{c.line}'))}: {code(escape(c.code))}"] if c.file else []
        lines.append(f"- **Reason:** {c.reason.value}. {text(escape(c.detail))}")
        lines += [f"- **Advice:** {text(escape(c.advice))}"] if c.advice else []
        lines += [f"- **Tried:** {text(escape(str(one)))}" for one in c.tried]
    # The paragraph ends the list: what is indented after a list belongs to it, and would be read as Markdown.
    return "\n".join([*lines, "", "The whole report:", "", *(f"    {line}" for line in report.rstrip("\n").split("\n"))])
