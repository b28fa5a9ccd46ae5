"""The sandbox of chat templates: Jinja within a budget.

A template comes from a stranger, and a Jinja template is a program. It runs in Jinja's sandbox,
which keeps it from Python's internals, and within a budget: rounds of loops, calls of macros, the
values that filters go through, and the strings and lists that are made are charged, so that a
template can neither run for ever nor fill the memory. What could be far larger than its operands
is charged before it is made. Comparisons and searches (`==`, `in`, `find`) make nothing, but they
are charged for what they read. Methods and filters that are not needed for text are absent.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn, cast

from jinja2 import Environment, Template, nodes
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_INTEGER_BITS = 256
MAX_DIGITS = 100  # of a string that `int` or `float` reads
MAX_PRECISION = 30  # of `round`, either side of the point
MAX_SEPARATOR = 10  # characters, of `tojson`
BUDGET = 4_000_000  # characters of one rendering, besides those for the messages
BUDGET_PER_CHARACTER = 50  # of the messages
# What else counts as so many characters: a value in a list, a round of a loop, a call of a macro.
ELEMENT, ROUND, CALL = 10, 100, 1000
STRING_METHODS = {
    "capitalize", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdigit", "islower",
    "isspace", "isupper", "join", "lower", "lstrip", "partition", "removeprefix", "removesuffix",
    "replace", "rfind", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith",
    "strip", "title", "upper",
}  # fmt: skip
PREFIX_METHODS = {"startswith", "endswith", "removeprefix", "removesuffix"}  # read no more
KEPT_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "e", "escape", "first", "last", "length", "lower",
    "safe", "string", "title", "trim", "upper",
)  # fmt: skip
ITERATING_FILTERS = (  # kept too, and charged for each value of their input
    "items", "list", "map", "reject", "rejectattr", "reverse", "select", "selectattr",
)  # fmt: skip
COMPARING_FILTERS = ("dictsort", "max", "min", "sort", "unique")  # and for all that is in them
KEPT_GLOBALS = ("range", "dict")
INTERCEPTED = frozenset(["+", "-", "*", "/", "//", "**", "%"])
# Comparisons as Jinja names them, as operators and as tests (`x is eq y`).
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
}
COMPARING_TESTS = {
    "==": "eq", "eq": "eq", "equalto": "eq", "!=": "ne", "ne": "ne", ">": "gt", "gt": "gt",
    "greaterthan": "gt", ">=": "gteq", "ge": "gteq", "<": "lt", "lt": "lt", "lessthan": "lt",
    "<=": "lteq", "le": "lteq",
}  # fmt: skip


def render(source: str, messages: list[dict[str, Any]], **values: Any) -> str:
    """The text that a template makes of messages, given more values by name."""
    characters = sum(len(str(each)) for message in messages for each in message.values())
    with _charged(BUDGET + BUDGET_PER_CHARACTER * characters):
        parts = _compiled(source).generate(messages=messages, tools=None, documents=None, **values)
        return "".join(parts)


def check_template(source: str) -> None:
    """Raise ValueError if a template cannot be compiled."""
    with _charged(BUDGET):
        _compiled(source)


# --- budget ------------------------------------------------------------------------------------


class _BudgetError(Exception):
    """The template has used up its budget."""


_LEFT: ContextVar[list[int]] = ContextVar("budget of a chat template")


@contextmanager
def _charged(budget: int) -> Iterator[None]:
    """Run a template within a budget; all that goes wrong is a ValueError."""
    token = _LEFT.set([budget])
    try:
        yield
    except _RefusalError as problem:
        raise ValueError(f"the chat template refuses these messages: {problem}") from None
    except _BudgetError:
        raise ValueError(
            "the chat template loops too often or writes too much for these messages, so it was "
            "stopped: use another"
        ) from None
    except TemplateSyntaxError as problem:
        raise ValueError(
            f"the chat template cannot be read: {problem.message}, line {problem.lineno}"
        ) from None
    except Exception as problem:  # a template is a stranger's program
        reason = " ".join(str(problem).split())[:200]
        raise ValueError(f"the chat template failed: {reason or type(problem).__name__}") from None
    finally:
        _LEFT.reset(token)


def _charge(amount: int) -> None:
    left = _LEFT.get()
    left[0] -= amount
    if left[0] < 0:
        raise _BudgetError


def _measure(value: object) -> None:
    """Charge for all that is in a value; shared parts count as often as they would be written."""
    if isinstance(value, str):
        _charge(1 + len(value))
    elif isinstance(value, Mapping):
        _charge(ELEMENT)
        for key, each in value.items():
            _measure(key)
            _measure(each)
    elif isinstance(value, list | tuple):
        _charge(ELEMENT)
        for each in value:
            _measure(each)
    elif value is None or isinstance(value, int | float | Namespace):
        _charge(ELEMENT)
    else:
        _charge(1 + len(str(value)))  # such as `items()`, which is written in full


def _charge_length(value: Sized) -> None:
    """Charge for going through a value once, whatever its parts contain."""
    _charge(1 + len(value) if isinstance(value, str) else ELEMENT * (1 + len(value)))


def _counted(values: Any) -> Any:
    """The values, charged: at once if their number is known, otherwise one by one."""
    if isinstance(values, Sized):
        _charge_length(values)
    elif isinstance(values, Iterator):
        return _charged_one_by_one(values)
    return values


def _charged_one_by_one(values: Iterator[Any]) -> Iterator[Any]:
    for value in values:
        _charge(ELEMENT)
        yield value


def _charge_comparison(left: Any, right: Any) -> None:
    """Charge for comparing two values: texts and lists of different lengths differ at once."""
    if isinstance(left, str) and isinstance(right, str):
        _charge(1 + min(len(left), len(right)))
    elif isinstance(left, Sized) and isinstance(right, Sized) and len(left) == len(right):
        _measure(left)
    else:
        _charge(1)


def _compare(name: str, left: Any, right: Any) -> bool:
    """A comparison or a search, charged for what it reads."""
    if name in COMPARISONS:
        _charge_comparison(left, right)
        return COMPARISONS[name](left, right)
    if isinstance(right, str):
        _measure(left)
        _charge_length(right)
    elif isinstance(right, Sized) and not isinstance(right, Mapping):  # also ranges and views
        for each in cast(Iterable[Any], right):
            _charge_comparison(left, each)
            _charge(ELEMENT)
    else:
        right = _counted(right) if isinstance(right, Iterator) else right
        _measure(left)
    return (left in right) is (name == "in")


def _comparing(name: str) -> Callable[[Any, Any], bool]:
    """The test for a comparison."""

    def test(left: Any, right: Any) -> bool:
        return _compare(name, left, right)

    return test


def _require_small(*numbers: Any) -> None:
    if any(isinstance(n, int) and n.bit_length() > MAX_INTEGER_BITS for n in numbers):
        raise TemplateError("a number is too large")


# --- the sandbox -------------------------------------------------------------------------------


class _RefusalError(TemplateError):
    """`raise_exception` of a template."""


class _Namespace(Namespace):
    """`namespace`; it cannot be written, since its values change without a charge."""

    def __init__(self, /, *values: Any, **named: Any) -> None:
        _measure((values, named))
        super().__init__(*values, **named)

    def __repr__(self) -> str:
        raise TemplateError("a namespace cannot be written, only its values")


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = INTERCEPTED

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr not in STRING_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """`format` is not among the methods of a string here: its widths have no limit."""

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or (operator == "%" and isinstance(left, str)):
            raise TemplateError(f"{operator} is not available for this")
        _require_small(left, right)  # a literal or a message may have any number of digits
        if operator == "*":
            for several, count in ((left, right), (right, left)):
                if isinstance(several, str | list | tuple) and isinstance(count, int):
                    _charge(max(0, len(several) * count))
        result = super().call_binop(context, operator, left, right)
        _require_small(result)
        _measure(result)
        return result

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        _charge(ELEMENT * (len(args) + len(kwargs)))  # `*values` may be many
        if isinstance(owner, list | tuple | range):  # `index` and `count` go through it
            _measure(args)
            _charge_length(owner)
        if isinstance(owner, str):  # a method of a string reads it, whatever it gives
            _measure(args)
            _charge(1 if name in PREFIX_METHODS else 1 + len(owner))
        if isinstance(owner, str) and name == "join" and args:
            args = (_joinable(args[0], owner), *args[1:])
        if isinstance(owner, str) and name == "replace" and len(args) > 1:
            _charge_replace(owner, args[0], args[1])
        result = super().call(context, obj, *args, **kwargs)
        if getattr(obj, "__module__", None) != __name__:  # this file's functions charge themselves
            _measure(result)
        return result

    @staticmethod
    def tick(cost: int) -> str:
        """Charge for a round of a loop, its condition, or a call of a macro."""
        _charge(cost)
        return ""

    @staticmethod
    def measured(value: Any) -> Any:
        _measure(value)
        return value

    @staticmethod
    def counted(values: Any) -> Any:
        return _counted(values)

    @staticmethod
    def sliced(value: Any) -> Any:
        _charge_length(value)
        return value

    @staticmethod
    def compared(names: Sequence[str], first: Any, *others: Any) -> bool:
        """`first` and the others in a chain, as in `1 < x < 3`."""
        left = first
        for name, right in zip(names, others, strict=True):
            if not _compare(name, left, right):
                return False
            left = right
        return True

    @staticmethod
    def concatenated(*values: Any) -> str:
        for value in values:
            _measure(value)
        return "".join(map(str, values))


class _Charging(NodeTransformer):
    """Charges for what Jinja's sandbox does not show: loops, macros, lists, slices and `~`."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self._ticking(node, ROUND)
        if node.test is not None:  # values that fail the test never reach the body
            node.iter = _environment_call("counted", [node.iter])
            if node.recursive:  # `loop(...)` brings other values; `tick` is false: the test decides
                tick = _environment_call("tick", [nodes.Const(ROUND)])
                node.test = nodes.Or(tick, node.test)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._ticking(node, CALL)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._ticking(node, CALL)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _environment_call("measured", [node])

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _environment_call("measured", [node])

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _environment_call("measured", [node]) if node.ctx == "load" else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _environment_call("sliced", [node]) if isinstance(node.arg, nodes.Slice) else node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        names = nodes.Const(tuple(each.op for each in node.ops))
        values = [node.expr, *(each.expr for each in node.ops)]
        return _environment_call("compared", [names, *values])

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _environment_call("concatenated", node.nodes)

    def _ticking(self, node: Any, cost: int) -> nodes.Node:
        written = [len(each.data) for each in node.find_all(nodes.TemplateData)]
        constants = (each.value for each in node.find_all(nodes.Const))
        written += [len(each) for each in constants if isinstance(each, str)]
        self.generic_visit(node)
        tick = _environment_call("tick", [nodes.Const(cost + sum(written))])
        node.body.insert(0, nodes.ExprStmt(tick))
        return node


def _environment_call(name: str, arguments: Sequence[nodes.Node]) -> nodes.Call:
    """A call of the environment's own function, which a template cannot replace by a variable."""
    return nodes.Call(nodes.EnvironmentAttribute(name), list(arguments), [], None, None)


class _Generation(Extension):
    """`{% generation %} ... {% endgeneration %}`, which marks answers: written as its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> list[nodes.Node]:
        next(parser.stream)
        body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return body


@functools.lru_cache(maxsize=64)
def _compiled(source: str) -> Template:
    environment = _environment()
    tree = _Charging().visit(environment.parse(source))
    code = environment.compile(tree)
    return Template.from_code(environment, code, environment.make_globals(None))


def _environment() -> Environment:
    environment = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, loopcontrols],
        finalize=_Sandbox.measured,
    )
    environment.filters = {name: _limited(_reading(FILTERS[name])) for name in KEPT_FILTERS}
    environment.filters |= {name: _limited(_counting(FILTERS[name])) for name in ITERATING_FILTERS}
    environment.filters |= {
        name: _limited(_counting(FILTERS[name], deep=True)) for name in COMPARING_FILTERS
    }
    others: dict[str, Any] = {n: each for n, each in TESTS.items() if n not in COMPARING_TESTS}
    environment.tests = {name: _reading(test) for name, test in others.items()}
    environment.tests |= {name: _comparing(kind) for name, kind in COMPARING_TESTS.items()}
    environment.tests["in"] = _comparing("in")
    environment.filters |= {
        "int": _number("int"),
        "float": _number("float"),
        "round": _round,
        "tojson": _tojson,
        "join": _join,
        "replace": _replace,
        "indent": _indent,
    }
    environment.globals = {name: environment.globals[name] for name in KEPT_GLOBALS}
    environment.globals |= {
        "namespace": _Namespace,
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
    }
    return environment


def _limited(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose result is charged."""

    @functools.wraps(function)  # keeps what Jinja notes on it
    def limited(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        _measure(result)
        return result

    return limited


def _counting(function: Callable[..., Any], deep: bool = False) -> Callable[..., Any]:
    """A filter whose input is charged: each value, or if `deep` all that is in it."""
    place = int(hasattr(function, "jinja_pass_arg"))  # Jinja may pass its context first

    @functools.wraps(function)
    def counting(*arguments: Any, **options: Any) -> Any:
        values = _counted(arguments[place])
        if deep:
            values = list(values) if isinstance(values, Iterator) else values
            _measure(values)
        return function(*arguments[:place], values, *arguments[place + 1 :], **options)

    return counting


def _reading(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test that is charged for the text that it reads: `trim` may give far less."""
    place = int(hasattr(function, "jinja_pass_arg"))

    @functools.wraps(function)
    def reading(*arguments: Any, **options: Any) -> Any:
        if len(arguments) > place and isinstance(arguments[place], str):
            _charge_length(arguments[place])
        return function(*arguments, **options)

    return reading


def _number(name: str) -> Callable[..., Any]:
    """`int` or `float`: a text with too many digits is no number, as one with letters is none."""

    def number(value: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(value, str) and len(value) > MAX_DIGITS:
            value = ""
        result = FILTERS[name](value, *arguments, **options)
        _require_small(result)
        return result

    return number


def _round(value: Any, precision: int = 0, method: Any = "common") -> Any:
    if not -MAX_PRECISION <= precision <= MAX_PRECISION:
        raise TemplateError(
            f"the precision of round must be from -{MAX_PRECISION} to {MAX_PRECISION}"
        )
    return FILTERS["round"](value, precision, method)


def _joinable(values: Iterable[Any], separator: object) -> list[str]:
    found = []
    for value in values:
        _measure(value)
        _measure(separator)
        found.append(str(value))
    return found


def _join(values: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        values = (value.get(attribute, "") for value in values if isinstance(value, Mapping))
    return d.join(_joinable(values, d))


def _charge_replace(text: str, old: object, new: object) -> None:
    times = len(text) + 1 if old == "" else text.count(str(old))
    _charge(len(text) + times * len(str(new)))


def _replace(text: Any, old: str, new: str, count: int | None = None) -> str:
    text = str(text)
    _charge_replace(text, old, new)
    return text.replace(old, new, -1 if count is None else count)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    space = width if isinstance(width, str) else " " * min(width, 1000)
    lines = str(text).splitlines()
    _charge(len(lines) * len(space) + len(str(text)))
    shown = [space + line if line or blank else line for line in lines]
    if lines and not first:
        shown[0] = lines[0]
    return "\n".join(shown)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    _measure(value)
    if indent is not None and not 0 <= indent <= 16:
        raise TemplateError("the indent of tojson must be from 0 to 16")
    if any(len(each) > MAX_SEPARATOR for each in separators or ()):
        raise TemplateError(f"a separator of tojson has at most {MAX_SEPARATOR} characters")
    text = json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
    _charge(len(text))
    return text


def _raise_exception(message: object) -> NoReturn:
    raise _RefusalError(" ".join(str(message).split())[:200])


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(str(form)[:100])
