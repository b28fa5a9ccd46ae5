"""Templates that escape the sandbox, loop endlessly or fill memory are stopped."""

import tracemalloc

import pytest
from jinja2 import Environment

from clearformer.text.chat_template import ChatTemplate

MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]
GROWS = "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}%s{% endfor %}{{ ns.x }}"
NINE_TIMES = "{% for a in range(9) %}%s{% endfor %}"
ESCAPES = {
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "item": "{{ ''['__class__'] }}",
    "globals": "{{ raise_exception.__globals__ }}",
    "filter": "{{ ''|attr('__class__') }}",
    "namespace": "{{ namespace.__init__.__globals__ }}",
    "format": "{{ '{0.__class__}'.format(1) }}",
    "map": "{{ messages | map(attribute='__class__') | list }}",
    "environment": "{{ self.__init__.__globals__ }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "append": "{{ messages.append(1) }}",
    "update": "{{ messages[0].update({'role': 'system'}) }}",
}
ENDLESS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "text": "{% for a in range(99999) %}" + "x" * 9999 + "{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "product": "{{ 'a' * (1000000 * 1000000) }}",
    "power": "{{ 9 ** 9 ** 9 }}",
    "numbers": "{% set ns = namespace(x=9) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}"
    "{% endfor %}",
    "sum": GROWS.replace("%s", "{% set ns.x = ns.x + ns.x %}"),
    "concatenation": GROWS.replace("%s", "{% set ns.x = ns.x ~ ns.x %}"),
    "block": GROWS.replace("%s", "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"),
    "lists": GROWS.replace("%s", "{% set ns.x = [ns.x, ns.x] %}"),
    "tuples": GROWS.replace("%s", "{% set ns.x = (ns.x, ns.x) %}"),
    "dicts": GROWS.replace("%s", "{% set ns.x = {'a': ns.x, 'b': ns.x} %}"),
    "calls": GROWS.replace("%s", "{% set ns.x = dict(a=ns.x, b=ns.x) %}"),
    "replace": "{{ ('a' * 9999).replace('', 'b' * 9999) }}",
    "replace filter": "{{ ('a' * 9999) | replace('a', 'b' * 9999) }}",
    "join": "{{ (['a' * 9999] * 9999) | join }}",
    "join method": "{{ ','.join(['a' * 9999] * 9999) }}",
    "percent": "{{ '%999999999d' % 1 }}",
    "format width": "{{ '{:>999999999}'.format(1) }}",
    "ljust": "{{ 'x'.ljust(999999999) }}",
    "center": "{{ 'x' | center(999999999) }}",
    "indent": "{{ (('a\\n' * 9999) | indent(999999999)) }}",
    "tojson": "{{ {'a': 1} | tojson(indent=999999999) }}",
    "range": "{{ range(999999999) | list }}",
    "round": "{{ 15 | round(-300000) }}",
    "condition": NINE_TIMES.replace("%s", "{% for b in range(99999) if false %}{% endfor %}"),
    "recursive condition": "{% for a in [range(99999)] * 9 if (a is iterable) recursive %}"
    "{{ loop(a) }}{% endfor %}",
    "max": NINE_TIMES.replace("%s", "{% set x = range(99999) | max %}"),
    "filters": NINE_TIMES.replace("%s", "{% set x = range(99999) | select | select | first %}"),
    "chain of filters": "{{ range(99999) " + "| select " * 9 + "| max }}",
    "length of a loop": NINE_TIMES.replace(
        "%s",
        "{% for b in range(99999) | reverse %}{% set x = loop.length %}{% break %}{% endfor %}",
    ),
    "condition on a filter": "{% for a in range(99999) "
    + "| select " * 4
    + "if false %}{% endfor %}",
    "views": "{% set d = {'a': 'b' * 9999} %}" + NINE_TIMES.replace("%s", "{{ d.items() }}" * 99),
    "namespace": "{% set ns = namespace(x='a' * 999) %}" + NINE_TIMES.replace("%s", "{{ ns }}"),
    "namespaces": "{% set ns = namespace(x='a' * 299999) %}"
    + NINE_TIMES.replace("%s", "{% set ns.x = namespace(a=ns.x, b=ns.x) %}")
    + "{{ ns.x | string | length }}",
    "slices": "{% set s = 'a' * 999999 %}" + NINE_TIMES.replace("%s", "{% set x = s[1:] %}"),
    "slices of lists": "{% set s = [1] * 99999 %}"
    + NINE_TIMES.replace("%s", "{% set x = s[1:] %}"),
    "equal lists": "{% set x = [1] * 99999 %}{% set y = [1] * 99999 %}"
    + NINE_TIMES.replace("%s", "{% set z = x == y %}"),
    "long literal": "{{ 0x" + "f" * 9999 + " // 3 }}",
    "separators": "{% set wide = ',' * 99999 %}{{ [1, 2, 3] | tojson(separators=(wide, ':')) }}",
}
# Each reads much and makes little: once it is in time, a thousand times it is stopped.
MADE = (
    "{% set s = 'a' * 29999 %}{% set t = 'b' ~ s[1:] %}{% set numbers = range(2999) %}"
    "{% set ones = [1] * 2999 %}{% macro f() %}{{ varargs | length }}{% endmacro %}"
)
READING = {
    "equal": "s == t ~ ''",
    "less": "s < t",
    "in a text": "'b' in s",
    "not in a text": "'b' not in s",
    "in a list": "t in [s]",
    "in a range": "0.5 in numbers",
    "test": "s is eq s",
    "test of a list": "[s] | select('equalto', s) | list | length",
    "lower": "s is lower",
    "find": "s.find('b')",
    "count": "s.count('b')",
    "count in a range": "numbers.count(0.5)",
    "count in a list": "ones.count(2)",
    "index in a list": "ones.index(1)",
    "arguments": "f(*numbers)",
    "digits": "s.isalpha()",
    "trim": "(s | trim('a'))",
    "strip": "s.strip('a')",
    "smallest": "[s, t] | min | length",
    "chain": "1 < 2 < (s in [t])",
}
DAMAGED = {
    "{% if %}": "cannot be read: Expected an expression",
    "{{ nothing.at.all }}": "failed: 'nothing' is undefined",
    "{{ 1 / 0 }}": "failed: division by zero",
    "{{ 1.5 | round(300000, 'floor') }}": "failed: the precision of round must be from -30 to 30",
    "{{ 1.5 | round(-300000, 'ceil') }}": "failed: the precision of round must be from -30 to 30",
    "{{ [1] | tojson(separators=(',' * 11, ':')) }}": "a separator of tojson has at most 10",
    "{{ namespace(a=1) }}": "failed: a namespace cannot be written, only its values",
    "{{ 0x" + "f" * 99 + " - 1 }}": "failed: a number is too large",
    "{{ 1 in 2 }}": "failed: argument of type 'int' is not",
    "{{ 1 | pprint }}": "cannot be read: No filter named 'pprint'",
    "{{ raise_exception('no\nsystem role') }}": "refuses these messages: no system role",
}


@pytest.mark.parametrize("name", ESCAPES)
def test_escapes_are_blocked(name):
    """It is refused, or what it asks for is not there."""
    try:
        said = ChatTemplate(source=ESCAPES[name]).render(MESSAGES)
    except ValueError as problem:
        said = str(problem)
    refused = said.startswith("the chat template ") and "\n" not in said
    assert refused or said in ("", "[Undefined, Undefined]")


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_templates_are_stopped_within_memory_limit(name):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="the chat template"):
            ChatTemplate(source=ENDLESS[name]).render(MESSAGES)
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", READING)
def test_what_is_read_is_charged(name):
    once = f"{{% set x = {READING[name]} %}}"
    assert ChatTemplate(source=MADE + once).render(MESSAGES) == ""
    again = MADE + "{% for i in range(1000) %}" + once + "{% endfor %}"
    with pytest.raises(ValueError, match="the chat template loops too often or writes too much"):
        ChatTemplate(source=again).render(MESSAGES)


@pytest.mark.parametrize(("source", "sentence"), DAMAGED.items())
def test_invalid_template_gives_one_sentence(source, sentence):
    with pytest.raises(ValueError, match=sentence) as problem:
        ChatTemplate(source=source).render(MESSAGES)
    assert "\n" not in str(problem.value)


def test_budget_grows_with_conversation_length():
    source = "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
    messages = [{"role": "user", "content": "x" * 100_000}] * 60
    assert len(ChatTemplate(source=source).render(messages)) == 60 * (100_000 + 7)


def test_template_cannot_replace_sandbox_names():
    source = "{% set tick = 1 %}{% set measured = 2 %}" + ENDLESS["loops"]
    with pytest.raises(ValueError, match="loops too often"):
        ChatTemplate(source=source).render(MESSAGES)


def test_charged_expressions_render_as_in_jinja():
    """Loops with conditions, slices, filters and `round` give what Jinja gives without a budget."""
    source = (
        "{% for n in range(9) if n is odd %}{{ loop.index }}/{{ loop.length }} {% endfor %}"
        "{% for n in [1, [2, [3]]] if n recursive %}"
        "{{ loop(n) if n is iterable else n }}{% endfor %}"
        "{{ messages[1:] }}{{ messages[0].content[::-1] }}{{ 'abc' | reverse }}"
        "{{ range(9) | select('odd') | map('string') | reverse | join(',') }}"
        "{{ messages | map(attribute='role') | sort(reverse=true) | first }}"
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
        "{{ messages[0].items() | list }}{{ messages[0] | dictsort }}{{ nothing | list }}"
        "{{ 2.345 | round(2) }}{{ 2.5 | round(method='ceil') }}{{ messages[0].items() }}"
        "{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}"
        "{{ 1 < 2 <= 2 != 3 }}{{ 3 > 2 > 2 }}{{ 'b' in 'abc' }}{{ 'b' not in ['a'] }}{{ 1 == 1.0 }}"
        "{{ 'a' in {'a': 1} }}{{ nothing == 1 }}{{ 2 in range(3) }}{{ 3 in range(3) | select }}"
        "{{ 1 is eq 1 }}{{ 'a' is in 'abc' }}{{ 2 is gt 1 }}{{ 2 is le 1 }}{{ [1, 2] == [1, 2] }}"
        "{{ 'ff' | int(base=16) }}{{ 'x' | int(7) }}{{ '1.5' | float }}{{ 7 // 2 - 1 }}{{ 7 / 2 }}"
        "{{ ['b', 'a'] | sort | first }}{{ range(3) | select | max }}{{ 'aXa'.find('X') }}"
    )
    expected = Environment().from_string(source).render(messages=MESSAGES)
    assert ChatTemplate(source=source).render(MESSAGES) == expected


def test_texts_of_many_digits_are_no_numbers():
    source = (
        "{{ ('f' * 9999) | int(base=16) }} {{ ('1' * 9999) | int(5) }} {{ ('1' * 999) | float }}"
    )
    assert ChatTemplate(source=source).render(MESSAGES) == "0 5 0.0"


def test_comparing_a_message_with_the_last_one_is_cheap():
    source = (
        "{% for m in messages %}{% if m == messages[-1] %}{{ m.content[:1] }}{% endif %}"
        "{% endfor %}"
    )
    messages = [{"role": "user", "content": "x" * 20}] * 500
    messages = [*messages, {"role": "user", "content": "y" * 90_000}]
    assert ChatTemplate(source=source).render(messages) == "y"


def test_long_conversation_within_budget():
    """Asking for the last message in every round stays cheap: a list is not charged in depth."""
    source = (
        "{% for m in messages %}{% if loop.index == messages | length %}{{ m.content }}{% endif %}"
        "{% if not messages[loop.index:] %}.{% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": "x" * 500}] * 400
    assert ChatTemplate(source=source).render(messages) == "x" * 500 + "."
