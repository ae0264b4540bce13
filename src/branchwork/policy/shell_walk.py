"""Walks the syntax tree of a script in the order in which a shell would run it."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from branchwork.policy.shell_commands import Runner, standard_input
from branchwork.policy.shell_judge import Find, Judge
from branchwork.policy.shell_redirects import redirect
from branchwork.policy.shell_state import Cwds, Flow, State, Unknown, merge
from branchwork.policy.shell_words import DATA, EVALUATED, PLAIN, UNKNOWN, Words, quoted

if TYPE_CHECKING:
    from tree_sitter import Node

UNROLL = 8
"""A loop over at most so many known words is followed word by word."""

_REDIRECTS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
_ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)\+?=|\b(?:read|for|select|getopts|mapfile|readarray|local|printf -v)\b")
_NAME = re.compile(r"[A-Za-z_]\w*")
_MOVES = re.compile(r"\b(cd|pushd|popd|eval|source)\b|^\s*\. ")
_COMPARES = re.compile(r"(^|\s)-(v|R|eq|ne|lt|le|gt|ge)\s")
_SUBSCRIPT = re.compile(r"\w['\"\\]*\[")


class Walker:
    """One script; a script within it gets a walker of its own with the same judge."""

    def __init__(self, judge: Judge, source: bytes) -> None:
        self.judge = judge
        self.source = source
        self.words = Words(self, judge)
        self.runner = Runner(judge)

    def text(self, node: "Node") -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")

    # ---- statements ----

    def run(self, node: "Node", state: State, stdin: str | None = None) -> Flow:
        kind = node.type
        if kind == "command":
            return self.command(node, state, stdin)
        handler = _STATEMENTS.get(kind)
        if handler is None:
            self.visit(node, state)
            return state, state
        self.judge.enter()
        try:
            return handler(self, node, state, stdin)
        finally:
            self.judge.leave()

    def block(self, nodes: Iterable["Node"], state: State, stdin: str | None = None) -> Flow:
        """Statements one after the other. A statement followed by `&` leaves the shell as it is."""
        flow: Flow = (state, state)
        before = state
        for node in nodes:
            if node.type == "&":
                flow = (before, before)
            elif node.is_named and node.type != "comment":
                start = merge(*flow)
                before = state if start is None else start
                flow = self.run(node, before, stdin)
        return flow

    def group(self, node: "Node", state: State, stdin: str | None) -> Flow:
        if node.type == "compound_statement" and node.children[0].type == "((":
            return self.double_paren(node, state)
        return self.block(node.children, state, stdin)

    def double_paren(self, node: "Node", state: State) -> Flow:
        self.arithmetic(node, state)
        return state, state

    def no_arithmetic(self, text: str, state: State) -> None:
        """Two words without an operator between them: a shell that can reads the parentheses as subshells."""
        inside = text.strip("$() \t\n")
        if re.search(r"[<>]\(", inside):
            self.judge.flag("S", "double-parenthesis", "`((...))` may hold a process substitution.")
        if not re.search(r"[\w}'\"]\s+[-\w./$'\"~]*\w", inside) or re.search(r"[=?,+*%&|^<>!]", inside):
            return
        words = inside.replace("'", "").replace('"', "").split()
        if self.runner.would_write(words, state):
            self.judge.flag("B", "double-parenthesis", "`((...))` holds a command that writes.")
        elif re.search(r"[A-Za-z_]\w*\s+[-/]*[A-Za-z_.]", inside):
            self.judge.flag("S", "double-parenthesis", "`((...))` holds what is no arithmetic.")

    def subshell(self, node: "Node", state: State, stdin: str | None) -> Flow:
        self.block(node.children, state, stdin)
        return state, state

    def chain(self, node: "Node", state: State, stdin: str | None, redirects: Sequence["Node"] = ()) -> Flow:
        """`a && b || c`: a tree that leans to the left, as deep as the list is long."""
        rest: list[tuple[str, Node]] = []
        while node.type == "list":
            left, operator, right = node.children[0], node.children[1], node.children[-1]
            rest.append((operator.type, right))
            node = left
        success, failure = self.run(node, state, stdin)
        last = rest[0][1]
        for operator_type, right in reversed(rest):
            after = list(redirects) if right is last else []
            if operator_type == "&&":
                good, bad = self.run_with(right, after, success or state, stdin)
                success, failure = good if success else None, merge(failure, bad if success else None)
            else:
                good, bad = self.run_with(right, after, failure or state, stdin)
                success, failure = merge(success, good if failure else None), bad if failure else None
        return success, failure

    def pipeline(self, node: "Node", state: State, stdin: str | None, redirects: Sequence["Node"] = ()) -> Flow:
        finds = self.judge.finds
        children = [child for child in node.children if child.is_named and child.type != "comment"]
        for child in children:
            self.judge.current = None
            count = len(finds)
            self.run_with(child, list(redirects) if child is children[-1] else [], state, stdin)
            stdin = standard_input(finds[count] if child.type == "command" else None, self.judge)
        return state, state

    def negated(self, node: "Node", state: State, stdin: str | None) -> Flow:
        success, failure = self.block(node.children, state, stdin)
        return failure, success

    def redirected(self, node: "Node", state: State, stdin: str | None) -> Flow:
        body = node.child_by_field_name("body")
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        if body is None:
            self.judge.current = None
            return self.rest_of_line(self.redirects(redirects, state)[2], (state, state))
        return self.run_with(body, redirects, state, stdin)

    def run_with(self, node: "Node", redirects: list["Node"], state: State, stdin: str | None) -> Flow:
        """Redirects after a list or a pipeline belong to its last command, though the tree hangs them on the whole."""
        kind = node.type
        if kind == "command":
            return self.command(node, state, stdin, redirects)
        if kind == "list":
            return self.chain(node, state, stdin, redirects)
        if kind == "pipeline":
            return self.pipeline(node, state, stdin, redirects)
        if kind == "negated_command":
            success, failure = self.run_with(node.children[-1], redirects, state, stdin)
            return failure, success
        self.judge.current = None
        _, fed, after = self.redirects(redirects, state)
        return self.rest_of_line(after, self.run(node, state, fed if fed is not None else stdin))

    def branch(self, node: "Node", state: State, stdin: str | None) -> Flow:
        """`if` with its `elif` and `else`: every way may be taken."""
        ends: State | None = None
        entry: State | None = state
        part: list[Node] = []
        condition_done = False
        before = state
        for child in node.children:
            if child.type in ("elif_clause", "else_clause"):
                success, failure = self.branch(child, entry or before, stdin)
                ends = merge(ends, merge(success, failure) if entry else None)
            elif child.type == "then" and not condition_done:
                success, entry = self.block(part, state, stdin)
                part, condition_done = [], True
                state = success or before
            else:
                part.append(child)
        ends = merge(ends, merge(*self.block(part, state, stdin)))
        if node.type != "else_clause":
            ends = merge(ends, entry)
        return ends, ends

    def loop(self, node: "Node", state: State, stdin: str | None) -> Flow:
        """What the body changes is unknown from its first command on, because it may run again."""
        state = self.unsettled(node, state)
        after = merge(*self.block(node.children, state, stdin))
        return merge(state, after), merge(state, after)

    def for_each(self, node: "Node", state: State, stdin: str | None) -> Flow:
        name = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        values = node.children_by_field_name("value")
        if node.children[0].type == "select" or name is None or body is None:
            return self.loop(node, self.assign(state, self.text(name), None) if name else state, stdin)
        words = [word for value in values for word in self.words.of(value, state)]
        known = bool(values) and len(words) <= UNROLL and not any(isinstance(word, Unknown) for word in words)
        if not known:
            data = any(isinstance(word, Unknown) and word.data for word in words)
            state = self.unsettled(node, state)
            value = Unknown("$" + self.text(name))
            value.data = data
            words = [value]
        current: State | None = state
        for word in words:
            inside = self.assign(current or state, self.text(name), word)
            current = merge(*self.run(body, inside, stdin)) or current
        ends = merge(state, current)
        return ends, ends

    def case(self, node: "Node", state: State, stdin: str | None) -> Flow:
        ends: State | None = state
        for child in node.children:
            if child.type == "case_item":
                commands: list[Node] = []
                for part in child.children:
                    if part.is_named and part.type not in _STATEMENT_TYPES:
                        self.visit(part, state)
                    else:
                        commands.append(part)
                ends = merge(ends, merge(*self.block(commands, state, stdin)))
            elif child.is_named:
                self.visit(child, state)
        return ends, ends

    def function(self, node: "Node", state: State, _: str | None) -> Flow:
        """The body is judged where it stands, with nothing known about where it will run."""
        name = self.text(node.child_by_field_name("name") or node)
        judge = self.judge
        if name in judge.tables.words["builtins.names"]:
            judge.flag("S", "function-shadows-builtin", f"A function named {name!r} changes what the script means.")
        judge.functions.add(name)
        unknown = State(state.cwds | {None}, {key: Unknown("$" + key) for key in state.variables})
        for child in node.children:
            if child.type in _REDIRECTS:
                judge.current = None
                self.redirects([child], unknown)
            elif child.is_named and child.type != "word":
                self.run(child, unknown)
        return state, state

    def test(self, node: "Node", state: State, _: str | None) -> Flow:
        """`[[ x -eq y ]]` evaluates both as arithmetic, `-v` its operand as the name of an array element."""
        text = self.text(node)
        if node.children[0].type == "[[" and _COMPARES.search(text):
            self.arithmetic(node, state)
        else:
            self.visit(node, state)
        inside = text.strip("[]")
        if _COMPARES.search(text) and _SUBSCRIPT.search(inside) and ("$" in inside or "`" in inside):
            self.judge.flag("S", "evaluated-text", "A comparison evaluates a subscript that holds an expansion.")
        for child in node.children:
            if child.type.endswith("redirect"):
                self.redirects([child], state)
        return state, state

    def generic(self, node: "Node", state: State, stdin: str | None) -> Flow:
        return self.block(node.children, state, stdin)

    # ---- simple commands ----

    def command(self, node: "Node", state: State, stdin: str | None, after: list["Node"] | None = None) -> Flow:
        judge = self.judge
        judge.spend()
        find = Find([])
        judge.finds.append(find)
        assigned: list[tuple[str, str]] = []
        words: list[str] = []
        redirects: list[Node] = []
        outer = judge.current
        judge.current = find
        try:
            for child in node.children:
                kind = child.type
                if kind == "variable_assignment":
                    assigned.append(self.assignment(child, state))
                elif kind in _REDIRECTS:
                    redirects.append(child)
                elif kind == "command_name":
                    words.extend(self.words.of(child.children[0] if child.child_count == 1 else child, state))
                elif kind not in ("==", "=~"):
                    words.extend(self.words.of(child, state))
                else:
                    words.append(kind)
            rest: list[Node] = []
            if redirects or after:
                more, fed, rest = self.redirects([*redirects, *(after or ())], state)
                words.extend(more)
                stdin = fed if fed is not None else stdin
            find.words[:] = words
            inner = state
            for name, value in assigned:
                inner = self.runner.environment(name, value, inner)
            self.runner.prefixed = inner if assigned else None
            flow: Flow = self.runner.call(words, state, stdin) if words else (inner, inner)
        finally:
            judge.current = outer
        return self.rest_of_line(rest, flow) if rest else flow

    def redirects(self, nodes: list["Node"], state: State) -> tuple[list[str], str | None, list["Node"]]:
        """Judges redirects. Returns words that the tree put among them, known standard input, and later statements."""
        words: list[str] = []
        fed: str | None = None
        rest: list[Node] = []
        for node in nodes:
            more, text, later = redirect(self, node, state)
            words.extend(more)
            fed = text if text is not None else fed
            rest.extend(later)
        return words, fed, rest

    def rest_of_line(self, nodes: list["Node"], flow: Flow) -> Flow:
        """What follows a here-document on its first line: the tree hangs it below the here-document."""
        start = merge(*flow)
        if not nodes or start is None:
            return flow
        for node in nodes:
            self.judge.current = None
            if node.type == "pipeline":
                self.pipeline(node, start, standard_input(None, self.judge))
            else:
                start = merge(start, merge(*self.run(node, start))) or start
        return start, start

    # ---- assignments ----

    def assignment(self, node: "Node", state: State) -> tuple[str, str]:
        """Name and value. An element of an array counts as its array, whose value is never known."""
        name_node, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
        name = self.text(name_node) if name_node is not None else ""
        if name_node is not None and name_node.type == "subscript":
            self.arithmetic(name_node, state)
            name = name.partition("[")[0]
            if value_node is not None:
                self.words.one(value_node, state)
            return name, Unknown("$" + name)
        if value_node is None:
            return name, ""
        if value_node.type == "array":
            for child in value_node.children:
                if child.is_named:
                    self.words.of(child, state)
            return name, Unknown("$" + name)
        value = self.words.one(value_node, state)
        if any(child.type == "+=" for child in node.children):
            before = self.words.lookup(name, state)
            if before is None or isinstance(before, Unknown) or isinstance(value, Unknown):
                return name, Unknown("$" + name)
            return name, before + value
        return name, value

    def standalone(self, node: "Node", state: State, _: str | None) -> Flow:
        """`X=1` as a statement, or several of them in one."""
        nodes = [node] if node.type == "variable_assignment" else node.children
        for child in nodes:
            if child.type == "variable_assignment":
                state = self.runner.environment(*self.assignment(child, state), state)
        return state, state

    def declaration(self, node: "Node", state: State, _: str | None) -> Flow:
        judge = self.judge
        judge.spend()
        find = Find([self.text(child) for child in node.children])
        judge.finds.append(find)
        outer, judge.current = judge.current, find
        options = ""
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                name, value = self.assignment(child, state)
                if "i" in options:
                    self.arithmetic(child, state)
                self.runner.evaluated(name, value)
                if set(options) & set("niaAul"):
                    value = Unknown("$" + name)
                state = self.runner.environment(name, value, state)
            elif child.type == "variable_name":
                if "n" in options or node.type == "unset_command" or find.words[0] == "local":
                    state = state.forgetting([self.text(child)])
            else:
                for word in self.words.of(child, state):
                    options += word[1:] if word.startswith("-") else ""
                    state = self.declared(word, state)
        judge.current = outer
        return state, state

    def declared(self, word: str, state: State) -> State:
        """`export "X=1"`: a whole word that is an assignment."""
        name, equals, value = word.partition("=")
        if isinstance(word, Unknown):
            self.judge.flag("S", "dynamic-declaration", f"{word!s} may set any variable.")
        elif equals and _NAME.fullmatch(name):
            return self.runner.environment(name, value, state)
        elif EVALUATED.search(word):
            self.judge.flag("S", "evaluated-text", f"{word!r} holds a command that the shell would run.")
        elif word and not word.startswith("-"):
            return state.forgetting([name])
        return state

    def assign(self, state: State, name: str, value: str | None) -> State:
        return self.runner.environment(name, Unknown("$" + name) if value is None else value, state)

    def unsettled(self, node: "Node", state: State) -> State:
        """The state at the start of code that runs any number of times."""
        text = self.text(node)
        names = {match[1] for match in _ASSIGNED.finditer(text) if match[1]}
        if _ASSIGNED.search(text) and any(match[1] is None for match in _ASSIGNED.finditer(text)):
            names |= set(state.variables) | {"HOME", "PWD", "TMPDIR"} & set(_NAME.findall(text))
        if any(name in self.judge.functions for name in _NAME.findall(text)):
            names |= set(state.variables)
        cwds: Cwds = state.cwds | {None} if _MOVES.search(text) else state.cwds
        state = state.at(cwds).forgetting(names) if names else state.at(cwds)
        for name in names:
            if all(re.match(r"\d+\b(?!\[)|\$\(\(", text[match.end() :]) for match in _sets(name, text)):
                state.variables[name] = Unknown.of("$" + name, "0", plain=True)
        return state

    # ---- things inside words ----

    def inner(self, node: "Node", state: State) -> None:
        """Judge the commands of a substitution; they run in a shell of their own."""
        judge = self.judge
        outer, judge.current = judge.current, None
        judge.enter()
        try:
            self.block(node.children, state)
        finally:
            judge.leave()
            judge.current = outer

    def substitution(self, node: "Node", state: State, *, double: bool) -> str:
        """Marked text of `$(...)`: known for `mktemp`, of a known shape for a few others."""
        judge = self.judge
        count = len(judge.finds)
        self.inner(node, state)
        named = [child for child in node.children if child.is_named and child.type != "comment"]
        found = judge.finds[count:]
        if len(named) != 1 or named[0].type != "command" or len(found) != 1 or not found[0].words:
            return DATA
        words = found[0].words
        if words[0] == "mktemp" and found[0].verdict == "A" and judge.tmp and "mktemp" not in judge.functions:
            judge.fresh += 1
            name = f"{judge.tmp}/mktemp.{judge.fresh}"
            return quoted(name)
        if words[0] in judge.tables.words["substitution.plain"] or (
            words[0] == "date" and not any("/" in word or isinstance(word, Unknown) for word in words)
        ):
            return PLAIN
        return UNKNOWN if words[0] in judge.tables.words["substitution.lists"] else DATA

    def arithmetic(self, node: "Node", state: State) -> None:
        """The shell evaluates the text of variables again, with the commands in their subscripts."""
        self.visit(node, state)
        if node.type in ("arithmetic_expansion", "compound_statement"):
            self.no_arithmetic(self.text(node), state)
        for name in set(_NAME.findall(self.text(node))):
            value = state.variables.get(name)
            if value is not None and (isinstance(value, Unknown) or not re.fullmatch(r"[\w\s+*/%-]*", value)):
                if isinstance(value, Unknown) and value.plain:
                    continue
                self.judge.flag("S", "arithmetic-value", f"Arithmetic evaluates what ${name} holds.")

    def visit(self, node: "Node", state: State) -> None:
        """Judge every command inside a piece of syntax that is no statement itself."""
        pending = [node]
        while pending:
            current = pending.pop()
            for child in reversed(current.children):
                kind = child.type
                if kind in ("command_substitution", "process_substitution"):
                    self.inner(child, state)
                elif kind in ("expansion", "simple_expansion", "arithmetic_expansion"):
                    self.judge.enter()
                    self.words.mark(child, state, double=True)
                    self.judge.leave()
                elif kind in _STATEMENTS or kind == "command":
                    self.judge.current = None
                    self.run(child, state)
                elif child.child_count:
                    pending.append(child)


def _sets(name: str, text: str) -> list[re.Match[str]]:
    found = list(re.finditer(rf"\b{name}(?:\+?=|\[[^]]*\]\+?=|\b(?=.*\bread\b))", text))
    return found or list(re.finditer(rf"\b{name}\b", text))


_STATEMENTS: dict[str, Callable[[Walker, Any, State, str | None], Flow]] = {
    "program": Walker.generic,
    "do_group": Walker.generic,
    "compound_statement": Walker.group,
    "subshell": Walker.subshell,
    "list": Walker.chain,
    "pipeline": Walker.pipeline,
    "negated_command": Walker.negated,
    "redirected_statement": Walker.redirected,
    "if_statement": Walker.branch,
    "while_statement": Walker.loop,
    "for_statement": Walker.for_each,
    "c_style_for_statement": Walker.loop,
    "case_statement": Walker.case,
    "function_definition": Walker.function,
    "variable_assignment": Walker.standalone,
    "variable_assignments": Walker.standalone,
    "declaration_command": Walker.declaration,
    "unset_command": Walker.declaration,
    "test_command": Walker.test,
    "ERROR": Walker.generic,
}
_STATEMENT_TYPES = frozenset((*_STATEMENTS, "command"))
