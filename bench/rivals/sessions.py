"""Each server does each task; the tokens of it, and whether the answer was there."""

import subprocess
import sys

import plot
from mcp import scratch
from report import table, verdict

from project import Project
from servers import COMMANDER, FILES, HYBRID, SHELL, TE, Session, available, tokens
from twelve import all_tasks

SCHEMA_TARGET, TASKS_TARGET = 0.90, 0.70


class Attempt:
    """One task done by one server."""

    def __init__(self, steps, correct):
        self.steps, self.correct = steps, correct
        self.tokens = sum(step.tokens for step in steps)
        self.answer = "\n".join(step.text for step in steps)


def measure(bench, plots):
    tasks, attempts, sessions = run(bench)
    wrong = [
        f"{kind.title}: {task.name}: the answer is not in what came back"
        for task in tasks for kind in (HYBRID, TE) if kind in attempts[task] and not attempts[task][kind].correct
    ]
    parts = [schema_table(sessions), tools_table(bench, sessions), task_table(tasks, attempts, sessions)]
    parts += [totals(tasks, attempts, sessions), goals(tasks, attempts, sessions), ripgrep(bench)]
    text = "\n\n".join(part for part in parts if part)
    if plots:
        text += pictures(tasks, attempts, sessions)
    return text, wrong


def run(bench, chosen=None):
    """The tasks, {task: {kind: attempt}}, and the sessions."""
    tasks = [task for task in all_tasks() if chosen in (None, task.name)]
    attempts, sessions = {task: {} for task in tasks}, {}
    p = Project()
    try:
        for kind in available(bench):
            with scratch() as home:
                sessions[kind] = session = Session.start(kind, bench, p.root, home)
                for task in tasks:
                    if kind in task.ways:
                        attempts[task][kind] = attempt(session, task, p)
                session.close()
        distrust(tasks, attempts, p)
    finally:
        p.remove()
    return tasks, attempts, sessions


def distrust(tasks, attempts, p):
    """Tries each check on wrong answers: half of the right one, and those to other questions."""
    answers = {task: attempts[task][HYBRID].answer for task in tasks if HYBRID in attempts[task]}
    for task, right in answers.items():
        p.reset()
        if task.prepare:
            task.prepare(p)
        wrong = [right[: len(right) // 2], *(answer for other, answer in answers.items() if other is not task)]
        if any(task.check(answer, p) for answer in wrong):
            raise SystemExit(f"the check of «{task.name}» lets a wrong answer pass")
    p.reset()


def attempt(session, task, p):
    p.reset()
    if task.prepare:
        task.prepare(p)
    if task.check("", p):
        raise SystemExit(f"the check of «{task.name}» is satisfied by nothing")
    session.take()
    task.ways[session.kind](session, p)
    done = Attempt(session.take(), None)
    done.correct = bool(task.check(done.answer, p))
    p.reset()
    said = "right" if done.correct else "WRONG"
    print(f"{session.kind.title}: {task.name}: {done.tokens} tokens in {len(done.steps)} calls, {said}", file=sys.stderr, flush=True)
    return done


def show(bench, name):
    """Prints what each server answers in one task."""
    for task, done in run(bench, name)[1].items():
        print(f"# {task.question}")
        for kind, one in done.items():
            said = " and ".join(f"{step.sent} + {step.received}" for step in one.steps)
            print(f"\n## {kind.title}: {said} tokens, {'right' if one.correct else 'WRONG'}\n\n{one.answer}")


def schema_table(sessions):
    theirs = sessions[COMMANDER].before if COMMANDER in sessions else None
    rows = []
    for kind, session in sessions.items():
        if kind is not SHELL:
            share = f"{session.before / theirs:.1%}" if theirs else "–"
            rows.append([name(kind), session.tools, f"{session.schema:,}", session.instructions, share])
    return table(["server", "tools", "tokens of the list", "of its instructions", "of Desktop Commander's"], rows)


def tools_table(bench, sessions):
    """What each tool of each list costs, dearest first."""
    lines = []
    for kind, session in sessions.items():
        if kind is SHELL:
            continue
        priced = sorted(((cost, tool) for tool, cost in session.prices.items()), reverse=True)
        lines.append(f"- {name(kind)}: " + ", ".join(f"`{tool}` {cost:,}" for cost, tool in priced))
    return "<details><summary>Tokens of each tool</summary>\n\n" + "\n".join(lines) + "\n\n</details>"


def task_table(tasks, attempts, sessions):
    rows = []
    for task in tasks:
        cells = []
        for kind in sessions:
            done = attempts[task].get(kind)
            cells.append("–" if done is None else f"{done.tokens:,}{'' if done.correct else ' ✗'}")
        rows.append([task.name, *cells])
    return (
        table(["task", *(kind.title for kind in sessions)], rows)
        + "\n\nTokens of the requests and answers. ✗: the answer was not in what came back. –: no tool for it."
    )


def totals(tasks, attempts, sessions):
    rows = []
    for kind, session in sessions.items():
        done = [attempts[task][kind] for task in tasks if kind in attempts[task]]
        traffic = sum(one.tokens for one in done)
        rows.append([
            kind.title, f"{sum(one.correct for one in done)} of {len(tasks)}", sum(len(one.steps) for one in done),
            f"{traffic:,}", f"{session.before + traffic:,}", f"{session.before * len(done) + traffic:,}",
            f"{resent(session.before, [step.tokens for one in done for step in one.steps]):,}",
        ])
    head = [
        "server", "tasks answered", "calls", "requests and answers", "all in one conversation",
        "a conversation for each task", "sent in all",
    ]
    return table(head, rows) + (
        "\n\nSent in all: what the model is sent in the one conversation when every request carries the list and all that was "
        "said before, as it does; a prompt cache makes that cheaper, not shorter."
    )


def resent(before, steps):
    """The sum over all requests to the model of what each carries."""
    return sum(before + sum(steps[:number]) for number in range(len(steps) + 1))


def goals(tasks, attempts, sessions):
    lines = []
    if COMMANDER not in sessions:
        return ""
    theirs = sessions[COMMANDER].before
    for kind in (HYBRID, TE):
        fewer = 1 - sessions[kind].before / theirs
        lines.append(f"- {kind.title}: {fewer:.1%} fewer tokens than Desktop Commander as the fixed cost of a conversation; target ≥ 90 %: {verdict(fewer >= SCHEMA_TARGET)}.")
    for kind in (HYBRID, TE):
        for rival in (COMMANDER, SHELL):
            both = [task for task in tasks if kind in attempts[task] and rival in attempts[task]]
            one = 1 - together(both, attempts, sessions, kind) / together(both, attempts, sessions, rival)
            each = 1 - apart(both, attempts, sessions, kind) / apart(both, attempts, sessions, rival)
            which = "all tasks" if len(both) == len(tasks) else f"the {len(both)} tasks that it has tools for"
            sent = 1 - in_all(both, attempts, sessions, kind) / in_all(both, attempts, sessions, rival)
            lines.append(
                f"- {kind.title} against {rival.title}, {which}: {one:.1%} fewer in one conversation, {each:.1%} fewer with a "
                f"conversation for each, {sent:.1%} fewer sent in all; target ≥ 70 %: {verdict(one >= TASKS_TARGET)}, "
                f"{verdict(each >= TASKS_TARGET)}, {verdict(sent >= TASKS_TARGET)}."
            )
    return "\n".join(lines)


def together(tasks, attempts, sessions, kind):
    return sessions[kind].before + sum(attempts[task][kind].tokens for task in tasks)


def apart(tasks, attempts, sessions, kind):
    return sum(sessions[kind].before + attempts[task][kind].tokens for task in tasks)


def in_all(tasks, attempts, sessions, kind):
    return resent(sessions[kind].before, [step.tokens for task in tasks for step in attempts[task][kind].steps])


def ripgrep(bench):
    """What bare ripgrep prints for the four searches, for comparison."""
    if not bench.ripgrep:
        return ""
    searches = [
        ["-n", r"def connected_components\b", "."], ["-n", "--heading", "--trim", r"\b_weight_function\(", "."],
        ["-n", "--heading", "--trim", "TODO|FIXME", "networkx/algorithms"], ["-n", "--heading", "--trim", "backend_priority", "."],
    ]
    p = Project()
    try:
        counted = []
        for words in searches:
            done = subprocess.run(
                [bench.ripgrep, "--no-config", *words], cwd=p.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
            )
            counted.append(tokens(bench, done.stdout))
    finally:
        p.remove()
    return (
        f"For comparison, ripgrep's bare output, without any server: {counted[0]} tokens for the definition, {counted[1]} for the "
        f"callers, {counted[2]:,} for the TODOs, {counted[3]} for the key."
    )


def pictures(tasks, attempts, sessions):
    kinds = list(sessions)
    per_task = {
        kind.title.replace("`", ""): [attempts[task][kind].tokens if kind in attempts[task] else None for task in tasks]
        for kind in kinds if kind is not FILES
    }
    full = [kind for kind in kinds if all(kind in attempts[task] for task in tasks)]
    whole = {
        "tool list and instructions": [sessions[kind].before for kind in full],
        "requests and answers": [sum(attempts[task][kind].tokens for task in tasks) for kind in full],
    }
    titles = [kind.title.replace("`", "") for kind in full]
    return (
        plot.put("session", plot.stacks("Twelve tasks in one conversation, o200k tokens", titles, whole, ["#334155", "#94a3b8"]))
        + plot.put("tasks", plot.groups(
            "Requests and answers of each task, o200k tokens", [task.name for task in tasks], per_task,
            [plot.LLMC, plot.LLMC_TOO, plot.RIVAL, plot.RIVAL_TOO],
        ))
    )


def name(kind):
    return kind.title.partition(",")[0]
