"""Raw JSON Schema: what it accepts, what it says of the rest, and what is refused as a schema."""

import json
import socket
from types import MappingProxyType
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwright.errors import InvalidArguments, ToolDefinitionError
from toolwright.tools.raw_schema import ArgumentProblem, compile_output_schema, compile_schema

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}},
}


def problems(schema: Any, value: Any) -> dict[str, ArgumentProblem]:
    """The problems of a value by path; a value that fits fails the test."""
    with pytest.raises(InvalidArguments) as caught:
        compile_schema(schema, owner="people")(json.dumps(value).encode())
    return {problem.path: problem for problem in caught.value.problems}


def refusal(schema: Any) -> str:
    with pytest.raises(ToolDefinitionError) as caught:
        compile_schema(schema, owner="people")
    return str(caught.value)


def test_an_object_that_fits_comes_back_decoded():
    validate = compile_schema(PERSON, owner="people")
    assert validate(b'{"name": "Ada", "age": 36, "tags": [{"label": "x"}]}') == {
        "name": "Ada",
        "age": 36,
        "tags": [{"label": "x"}],
    }


@pytest.mark.promise("RUN-03")
def test_every_error_is_listed_with_its_path_what_was_given_and_what_was_expected():
    found = problems(PERSON, {"name": "A", "age": "36", "tags": [{"label": "x"}, {"label": 5}], "town": "Rome"})
    assert found.keys() == {"$.name", "$.age", "$.tags[1].label", "$.town"}
    assert (found["$.name"].given, found["$.name"].expected) == ('"A"', "at least 2 characters")
    assert (found["$.age"].given, found["$.age"].expected) == ('"36"', "an integer")
    assert (found["$.tags[1].label"].given, found["$.tags[1].label"].expected) == ("5", "a string")
    assert found["$.town"].given == '"Rome"'


@pytest.mark.promise("RUN-03")
def test_a_missing_field_names_the_fields_that_were_given():
    found = problems(PERSON, {"nam": "Ada", "tags": [{}]})
    assert "'name'" in found["$.name"].message
    assert "'nam', 'tags'" in found["$.name"].message
    assert (found["$.name"].given, found["$.name"].expected) == ("nothing", "a string")
    assert "no fields were given" in found["$.tags[0].label"].message


def test_an_unexpected_field_names_the_allowed_ones():
    assert "'name', 'age', 'tags'" in problems(PERSON, {"name": "Ada", "age": 1, "x": 1})["$.x"].message


def test_unevaluated_fields_name_the_fields_of_all_parts_of_the_schema():
    schema = {
        "allOf": [{"$ref": "#/$defs/base"}],
        "properties": {"b": {}},
        "unevaluatedProperties": False,
        "$defs": {"base": {"properties": {"a": {}}}},
    }
    message = problems(schema, {"a": 1, "b": 1, "c": 1})["$.c"].message
    assert "'a'" in message
    assert "'b'" in message


@pytest.mark.parametrize(
    ("part", "value", "expected"),
    [
        ({"enum": ["a", None, 3]}, "b", 'one of "a", null, 3'),
        ({"const": {"x": 1}}, 2, '{"x":1}'),
        ({"type": ["string", "null"]}, 2, "a string or null"),
        ({"maximum": 5}, 6, "at most 5"),
        ({"exclusiveMinimum": 5}, 5, "more than 5"),
        ({"exclusiveMaximum": 5}, 5, "less than 5"),
        ({"multipleOf": 4}, 6, "a multiple of 4"),
        ({"maxLength": 1}, "ab", "at most 1 characters"),
        ({"pattern": "^a{2}$"}, "b", "text that matches ^a{2}$"),
        ({"minItems": 1}, [], "at least 1 items"),
        ({"maxItems": 1}, [1, 2], "at most 1 items"),
        ({"uniqueItems": True}, [1, 1], "items that all differ"),
        ({"minProperties": 1}, {}, "at least 1 fields"),
        ({"maxProperties": 0}, {"a": 1}, "at most 0 fields"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "at most 1 characters"),
        ({"not": {"type": "null"}}, None, "anything that does not fit {'type': 'null'}"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 2, "a string or null"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 2, "exactly one of the allowed forms"),
        ({"contains": {"type": "string"}}, [1], "items as 'contains' asks"),
        (False, 1, "nothing here"),
    ],
)
def test_each_keyword_says_what_it_expected(part: Any, value: Any, expected: str):
    found = problems({"properties": {"x": part}}, {"x": value})
    assert found.keys() == {"$.x"}
    assert found["$.x"].expected == expected


def test_a_form_that_fits_none_of_several_names_what_each_lacks():
    schema = {"properties": {"x": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["id"]}]}}}
    found = problems(schema, {"x": {"name": 1}})["$.x"]
    assert found.expected.startswith("a string or ")
    assert "$.x.id" in found.expected


def test_a_path_quotes_names_that_are_not_words():
    found = problems({"additionalProperties": {"type": "string"}}, {"a b": 1, "ünï": 2, 'q"': 3})
    assert found.keys() == {'$["a b"]', "$.ünï", '$["q\\""]'}


@pytest.mark.promise("TOOL-04")
@pytest.mark.parametrize("schema", [None, {}, True])
def test_no_schema_accepts_any_object(schema: Any):
    assert compile_schema(schema, owner="people")(b'{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


def test_the_schema_false_accepts_nothing():
    assert problems(False, {})["$"].given == "{}"


def test_text_that_is_not_an_object_is_a_problem_and_no_crash():
    validate = compile_schema(None, owner="people")
    for raw in (b"[1]", b"", b"{", b'{"a": NaN}', b'{"a":' * 100_000):
        with pytest.raises(InvalidArguments) as caught:
            validate(raw)
        assert caught.value.problems[0].path == "$"


@pytest.mark.promise("TOOL-04")
@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "objekt"}, "$.type"),
        ({"properties": {"a": {"type": "any"}}}, "$.properties.a.type"),
        ({"required": "name"}, "$.required"),
        ({"properties": {"a": {"pattern": "("}}}, "$.properties.a.pattern"),
        ({"properties": {"a": 5}}, "$.properties.a"),
        ({"$schema": "https://example.com/own"}, "$schema"),
        ({"enum": [{1, 2}]}, "set"),
        ({"enum": [object()]}, "object"),
        ({1: {}}, "int"),
        ([{"type": "object"}], "list"),
        ("object", "str"),
        (5, "int"),
    ],
)
def test_a_schema_that_is_not_json_schema_is_refused_with_the_tool_and_the_place(schema: Any, place: str):
    message = refusal(schema)
    assert "'people'" in message
    assert place in message


def test_a_schema_that_contains_itself_is_refused():
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"again": schema}
    assert "'people'" in refusal(schema)


@pytest.mark.promise("TOOL-04")
@pytest.mark.parametrize(
    "reference",
    [
        "http://example.com/schema.json",
        "https://example.com/schema.json#/$defs/a",
        "file:///etc/hostname",
        "other.json",
        "/etc/hostname",
        "urn:example:schema",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
        "#/$defs/missing",
        "#anchor",
    ],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_reference_out_of_the_document_is_refused(keyword: str, reference: str):
    message = refusal({"properties": {"a": {"items": {keyword: reference}}}})
    assert "'people'" in message
    assert "'#/$defs/<name>'" in message


def test_a_reference_that_no_value_would_reach_is_refused_too():
    assert "example.com" in refusal({"$defs": {"unused": {"$ref": "https://example.com/a"}}})


@pytest.mark.promise("TOOL-04")
def test_nothing_is_fetched_even_when_it_is_there(tmp_path):
    (tmp_path / "name.json").write_text('{"type": "string"}')
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        refusal({"properties": {"a": {"$ref": f"http://127.0.0.1:{server.getsockname()[1]}/name.json"}}})
        with pytest.raises(BlockingIOError):
            server.accept()
    refusal({"properties": {"a": {"$ref": (tmp_path / "name.json").as_uri()}}})
    refusal({"$id": tmp_path.as_uri() + "/", "properties": {"a": {"$ref": "name.json"}}})


def test_what_looks_like_a_reference_but_is_data_or_a_name_stays():
    schema = {
        "properties": {
            "$ref": {"type": "string"},
            "a": {"const": {"$ref": "http://json-schema.org/draft-07/schema#"}},
        },
        "examples": [{"$ref": "https://example.com"}],
    }
    value = {"$ref": "x", "a": {"$ref": "http://json-schema.org/draft-07/schema#"}}
    assert compile_schema(schema, owner="people")(json.dumps(value).encode()) == value


def test_references_inside_the_document_work_however_deep_and_recursive():
    definitions: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(100)}
    definitions["d100"] = {"type": "integer"}
    definitions["node"] = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/node"}, "deep": {"$ref": "#/$defs/d0"}},
    }
    schema = {"$ref": "#/$defs/node", "$defs": definitions}
    value: dict[str, Any] = {"deep": 1}
    wrong: dict[str, Any] = {"deep": "x"}
    for _ in range(200):
        value, wrong = {"next": value}, {"next": wrong}
    assert compile_schema(schema, owner="people")(json.dumps(value).encode()) == value
    assert problems(schema, wrong).keys() == {"$" + ".next" * 200 + ".deep"}


def test_references_to_ids_and_anchors_of_the_document_work():
    schema = {
        "$id": "https://example.com/root",
        "properties": {"a": {"$ref": "part"}, "b": {"$ref": "#name"}},
        "$defs": {"p": {"$id": "part", "type": "integer"}, "n": {"$anchor": "name", "type": "string"}},
    }
    assert compile_schema(schema, owner="people")(b'{"a": 1, "b": "x"}') == {"a": 1, "b": "x"}
    assert problems(schema, {"a": "x", "b": 1}).keys() == {"$.a", "$.b"}


def test_a_missing_field_is_described_through_escaped_and_circular_references():
    schema = {
        "$ref": "#/$defs/all",
        "properties": {"x": {"$ref": "#/$defs/a~1b%20c~0d"}, "y": {"$ref": "#/$defs/all/allOf/1"}},
        "required": ["x", "y"],
        "$defs": {
            "all": {"allOf": [{"$ref": "#/$defs/all"}, {"type": "object"}]},
            "a/b c~d": {"type": "integer"},
        },
    }
    found = problems(schema, {})
    assert (found["$.x"].expected, found["$.y"].expected) == ("an integer", "an object")


def test_a_field_that_one_part_of_the_schema_refuses_is_not_named_as_allowed():
    closed = {"properties": {"a": {}}, "additionalProperties": False}
    found = problems({"allOf": [closed, {"properties": {"b": {}}}]}, {"a": 1, "b": 1})
    assert found["$.b"].message == "the field 'b' is not known; the fields allowed are 'a'"


def test_older_drafts_are_read_as_such():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"pair": {"items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}},
        "properties": {"pair": {"$ref": "#/definitions/pair"}},
    }
    assert problems(schema, {"pair": [1, "x", 2]}).keys() == {"$.pair[0]", "$.pair[1]", "$.pair"}


def test_a_format_is_a_note_and_never_refuses():
    for draft in ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"):
        validate = compile_schema({"$schema": draft, "properties": {"d": {"format": "date"}}}, owner="people")
        assert validate(b'{"d": "soon"}') == {"d": "soon"}


def test_changing_the_schema_afterwards_changes_nothing():
    schema: dict[str, Any] = {"properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    validate = compile_schema(schema, owner="people")
    schema["properties"]["a"]["type"] = "string"
    schema["properties"]["b"] = {}
    assert validate(b'{"a": 1}') == {"a": 1}
    with pytest.raises(InvalidArguments) as caught:
        validate(b'{"b": 1}')
    assert "the fields allowed are 'a'" in caught.value.problems[0].message


def test_a_schema_may_be_a_read_only_mapping_with_tuples_in_it():
    schema = MappingProxyType({"properties": MappingProxyType({"a": {"type": ("integer", "null")}})})
    assert problems(schema, {"a": "x"})["$.a"].expected == "an integer or null"


@pytest.mark.promise("TOOL-07")
def test_an_output_schema_checks_values_of_any_kind_and_names_the_path():
    check = compile_output_schema({"type": "array", "items": {"type": "integer"}}, owner="people")
    assert check(b"[1, 2]") == []
    assert [(p.path, p.given, p.expected) for p in check(b'[1, "x"]')] == [("$[1]", '"x"', "an integer")]
    assert [(p.path, p.expected) for p in check(b"{}")] == [("$", "an array")]
    assert [p.path for p in check(b"[")] == ["$"]
    assert compile_output_schema({"type": "null"}, owner="people")(b"null") == []


# Both implementations are asked the same: constraints of numbers, texts, lists, objects and combinations.
SCALARS = st.one_of(
    st.just({"type": "string"}),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        *[st.integers(0, 4)] * 2,
    ),
    st.builds(lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more}, *[st.integers(0, 9)] * 2),
    st.builds(lambda step: {"type": "integer", "multipleOf": step}, st.integers(1, 5)),
    st.builds(lambda low: {"type": "number", "exclusiveMinimum": low}, st.integers(-5, 5)),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"enum": [1, "a", None, True, [1]]}, {"const": {"a": 0}}]),
)


def objects(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["a", "b", "c d"])
    return st.builds(
        lambda properties, required, closed: {
            "type": "object",
            "properties": properties,
            "required": sorted(required & properties.keys()),
            **({"additionalProperties": False} if closed else {}),
        },
        st.dictionaries(names, parts, max_size=3),
        st.sets(names),
        st.booleans(),
    )


PARTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        objects(inner),
        st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(0, 3)),
        st.builds(lambda some: {"anyOf": some}, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=5,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c d", "e"]), inner),
    max_leaves=5,
)


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a schema of the kind above."""
    match schema:
        case {"enum": options}:
            return st.sampled_from(options)
        case {"const": value}:
            return st.just(value)
        case {"anyOf": forms}:
            return st.one_of(*map(fitting, forms))
        case {"type": "string"}:
            return st.text(min_size=schema.get("minLength", 0), max_size=schema.get("maxLength"))
        case {"type": "integer", "multipleOf": step}:
            return st.integers(-(10**30), 10**30).map(lambda number: number * step)
        case {"type": "integer"}:
            return st.integers(schema["minimum"], schema["maximum"])
        case {"type": "number"}:
            return st.floats(schema["exclusiveMinimum"], exclude_min=True, allow_infinity=False)
        case {"type": "array", "items": items}:
            return st.lists(fitting(items), max_size=schema["maxItems"])
        case {"type": "object", "properties": properties}:
            required = {name: fitting(properties[name]) for name in schema["required"]}
            optional = {name: fitting(part) for name, part in properties.items() if name not in required}
            more = st.just({}) if "additionalProperties" in schema else st.dictionaries(st.just("more"), JSON)
            known = st.fixed_dictionaries(required, optional=optional)
            return st.builds(lambda named, others: {**named, **others}, known, more)
    return {"boolean": st.booleans(), "null": st.none()}[schema["type"]]


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_what_fits_a_random_schema_is_accepted_and_unchanged(data: st.DataObject):
    schema = data.draw(objects(PARTS))
    value = data.draw(fitting(schema))
    assert compile_schema(schema, owner="people")(json.dumps(value).encode()) == value


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_the_verdict_on_a_changed_value_is_that_of_another_implementation(data: st.DataObject):
    draft = data.draw(st.sampled_from([jsonschema.Draft7Validator, jsonschema.Draft202012Validator]))
    schema = data.draw(objects(PARTS))
    value = json.loads(json.dumps(data.draw(fitting(schema))))
    place: Any = value
    for _ in range(data.draw(st.integers(1, 4))):
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from([*keys, "e"] if isinstance(place, dict) else keys))
        if key == "e" or not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(JSON)
            break
        place = place[key]

    schema = {"$schema": draft.META_SCHEMA["$schema"], **schema}
    wrong = {tuple(error.absolute_path) for error in draft(schema).iter_errors(value)}
    found: list[ArgumentProblem] = []
    try:
        compile_schema(schema, owner="people")(json.dumps(value).encode())
    except InvalidArguments as error:
        found = error.problems
    assert bool(found) == bool(wrong)
    assert len(found) >= len(wrong)


@pytest.mark.promise("RUN-03")
@pytest.mark.parametrize("key", ["123", "0", "007", "+1", "", "a/b", "18446744073709551616"])
def test_a_key_that_looks_like_an_index_is_a_key_in_the_path(key):
    schema = {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}}}
    (problem,) = problems(schema, {"outer": {key: "x"}}).values()
    assert (problem.path, problem.given) == (f'$.outer["{key}"]', '"x"')


@pytest.mark.promise("RUN-03")
def test_keys_that_differ_in_leading_zeros_have_paths_of_their_own():
    numbers = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}}
    assert problems(numbers, {"1": ["a"], "01": ["a"], "001": [5]}).keys() == {'$["1"][0]', '$["01"][0]'}


@pytest.mark.promise("RUN-03")
def test_fields_below_a_key_of_digits_are_named_too():
    by_year = {"type": "object", "additionalProperties": {"type": "object", "required": ["total"]}}
    found = problems(by_year, {"2024": {"sum": 5}})
    assert found['$["2024"].total'].message == "the required field 'total' is missing; the fields given are 'sum'"


@pytest.mark.promise("TOOL-04")
@pytest.mark.parametrize("named", ["https://example.com/mine", "http://json-schema.org/draft-04/schema#", 5])
def test_a_draft_named_inside_a_schema_is_refused_and_not_ignored(named):
    inner = {"$schema": named, "$id": "urn:inner", "exclusiveMinimum": 5}
    told = refusal({"type": "object", "properties": {"$schema": {"type": "string"}, "n": inner}})
    assert "$.properties.n" in told
    assert "leave '$schema' out" in told


def test_a_property_called_dollar_schema_is_a_property():
    validate = compile_schema({"type": "object", "properties": {"$schema": {"type": "string"}}}, owner="people")
    assert validate(b'{"$schema": "mine"}') == {"$schema": "mine"}
