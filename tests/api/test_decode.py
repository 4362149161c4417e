"""Decoding, as the pure function that it is: whatever comes in, out comes a struct or an error that names the field."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.api import decode
from app.api.decode import decode_body, decode_query, fault_of
from app.api.fields import Name
from app.api.schemas import (
    Asked,
    BatchBody,
    ClaimBody,
    CompleteBody,
    FailBody,
    HeartbeatBody,
    KeyBody,
    ListQuery,
    Nothing,
    QueueBody,
    SubmitBody,
    TenantBody,
    TenantChanges,
    TokenBody,
)
from app.errors import FieldError, InvalidRequest

BODIES: Final[dict[type[Asked], dict[str, Any]]] = {
    SubmitBody: {"tenant": "acme", "test_suite": "smoke"},
    BatchBody: {"jobs": [{"tenant": "acme", "test_suite": "smoke"}]},
    ClaimBody: {"worker": "w"},
    TokenBody: {"token": "t"},
    HeartbeatBody: {"token": "t"},
    CompleteBody: {"token": "t"},
    FailBody: {"token": "t", "error": "e"},
    TenantBody: {},
    TenantChanges: {},
    QueueBody: {},
    KeyBody: {"name": "ci", "role": "worker"},
    Nothing: {},
}
MIB: Final = 1024 * 1024
FIELDS: Final = [(kind, name) for kind in BODIES for name in kind.__struct_fields__]

any_text = st.text(st.characters(codec="utf-8"))
any_number = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
any_json = st.recursive(
    st.none() | st.booleans() | any_number | any_text,
    lambda held: st.lists(held, max_size=5) | st.dictionaries(any_text, held, max_size=5),
    max_leaves=20,
)


def faults(body: Any, kind: type[Asked]) -> tuple[str, list[str]]:
    """The sentence and the fields that are named."""
    with pytest.raises(InvalidRequest) as refusal:
        decode_body(json.dumps(body).encode(), kind)
    return str(refusal.value), [error.field for error in refusal.value.details]


@given(st.binary() | any_text.map(str.encode) | any_json.map(json.dumps).map(str.encode))
@example(b"[" * 100_000)
@example(b'{"tenant":' * 100_000)
@example(b'{"payload": 1e999999999}')
@example(b'{"priority": ' + b"9" * 100_000 + b"}")
@example(b'{"payload": "\\ud800"}')
@example(b'{"\\ud800": 1}')
@example(b"\xff\xfe{}")
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    for kind in BODIES:
        try:
            decode_body(body, kind)
        except InvalidRequest as refusal:
            json.dumps([str(refusal), [error.field for error in refusal.details]]).encode()


@settings(max_examples=25)
@pytest.mark.parametrize(("kind", "field"), FIELDS, ids=lambda of: of if isinstance(of, str) else of.__name__)
@given(data=st.data())
def test_any_value_in_any_field_is_taken_or_named(kind: type[Asked], field: str, data: st.DataObject) -> None:
    value = data.draw(any_json)
    body = BODIES[kind] | {field: value}
    try:
        decoded = decode_body(json.dumps(body).encode(), kind)
    except InvalidRequest:
        sentence, fields = faults(body, kind)
        assert {name.partition("[")[0] for name in fields} == {field}
        assert field in sentence
    else:
        kept = getattr(decoded, field)
        if isinstance(value, str | bool | int | type(None)) and not hasattr(kept, "tzinfo"):
            assert (kept, type(kept)) in ((value, type(value)), (value, float))


@settings(max_examples=50)
@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_what_is_decoded_at_once_is_what_it_is_field_by_field(kind: type[Asked], data: st.DataObject) -> None:
    """Also of an object in which a field stands twice."""
    good = list(BODIES[kind].items())
    names = st.sampled_from([*kind.__struct_fields__, "another"])
    values = any_json | st.sampled_from([1, "2030-01-01T00:00:00Z", "1066-10-14T00:00:00Z", ["\0"]])
    odd = data.draw(st.lists(st.tuples(names, values), max_size=3))
    fields = data.draw(st.permutations(good * 2 + odd))
    body = ("{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in fields) + "}").encode()

    def outcome() -> object:
        try:
            return decode_body(body, kind)
        except InvalidRequest as refusal:
            return str(refusal), refusal.details

    at_once = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "_struct_in", lambda piece, _: piece)
        assert outcome() == at_once


@given(st.sets(any_text.filter(lambda name: name not in SubmitBody.__struct_fields__), min_size=1, max_size=5))
def test_unknown_fields_are_all_named(names: set[str]) -> None:
    _, fields = faults(BODIES[SubmitBody] | dict.fromkeys(names, 1), SubmitBody)
    assert len(fields) == len(names)


@given(any_json)
def test_a_payload_is_kept_as_it_is_or_refused(payload: Any) -> None:
    try:
        body = decode_body(json.dumps(BODIES[SubmitBody] | {"payload": payload}).encode(), SubmitBody)
    except InvalidRequest:
        assert "\\u0000" in json.dumps(payload)
    else:
        assert body.payload == payload
        assert json.dumps(body.payload) == json.dumps(payload)


class TestSentence:
    def test_it_is_about_what_is_missing_first_then_the_priority_then_in_order(self) -> None:
        bad: dict[str, Any] = {"max_attempts": 0, "queue": "", "run_at": 1, "priority": 99, "zz": 1}
        assert faults(bad, SubmitBody)[0] == "tenant and test_suite are required"
        bad |= {"tenant": 1, "test_suite": 2}
        assert faults(bad, SubmitBody)[0] == "priority must be 0-10"
        del bad["priority"]
        assert faults(bad, SubmitBody)[0].startswith("tenant must be ")
        del bad["tenant"]
        assert faults(bad, SubmitBody)[0] == "tenant and test_suite are required"
        bad |= BODIES[SubmitBody]
        sentence, fields = faults(bad, SubmitBody)
        assert sentence.startswith("run_at must be a time")
        assert fields == ["run_at", "queue", "max_attempts", "zz"]

    def test_what_is_wrong_elsewhere_comes_last(self) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            decode_body(b'{"token": ""}', TokenBody, [FieldError("X-Header", "must not be so")])
        assert str(refusal.value) == "token is required"
        assert [error.field for error in refusal.value.details] == ["token", "X-Header"]

    def test_a_batch_is_about_its_first_bad_item(self) -> None:
        items = [BODIES[SubmitBody], BODIES[SubmitBody] | {"cost": 0, "priority": -1}, {}]
        sentence, fields = faults({"jobs": items}, BatchBody)
        assert sentence == "jobs[1]: priority must be 0-10"
        assert fields == ["jobs[1].priority", "jobs[1].cost", "jobs[2].tenant", "jobs[2].test_suite"]

    def test_a_long_unknown_name_is_cut(self) -> None:
        sentence, [field] = faults(BODIES[TokenBody] | {"a" * 100_000: 1}, TokenBody)
        assert len(field) < 200
        assert len(sentence) < 200

    def test_an_answer_to_a_hostile_batch_stays_bounded(self) -> None:
        items = [{f"{n}": 1 for n in range(200)}] * 100
        assert len(faults({"jobs": items}, BatchBody)[1]) == 10_000

    def test_no_more_faults_are_found_than_are_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = 0

        def count(name: str) -> str:
            nonlocal found
            found += 1
            return name

        monkeypatch.setattr(decode, "_cut", count)
        many = {f"{n}": 1 for n in range(30_000)}
        for body, kind in ((many, SubmitBody), ({"jobs": [many]}, BatchBody)):
            found = 0
            assert len(faults(body, kind)[1]) == 10_000
            assert found <= 10_000

    @pytest.mark.parametrize(
        ("kind", "field", "value", "message"),
        [
            (SubmitBody, "cost", "1", "must be 1-1000"),
            (SubmitBody, "timeout_sec", 0, "must be 1-604800 or null"),
            (ClaimBody, "start", 1, "must be true or false"),
            (ClaimBody, "queues", [], "must be a list of 1-1000 queue names"),
            (HeartbeatBody, "progress", 2, "must be a number from 0 to 1"),
            (TenantBody, "max_running", 0, "must be 1-1000000000 or null"),
            (BatchBody, "jobs", [], "must be a list of 1-10000"),
        ],
    )
    def test_it_says_what_would_do(self, kind: type[Asked], field: str, value: Any, message: str) -> None:
        assert faults(BODIES[kind] | {field: value}, kind)[0] == f"{field} {message}"


@pytest.mark.parametrize(("kind", "field"), FIELDS, ids=lambda of: of if isinstance(of, str) else of.__name__)
@pytest.mark.parametrize("number", ["1" + "0" * 5000, "-" + "9" * 5000, "1e400", '["5", ' + "7" * 9000 + "]"])
def test_a_number_of_any_length_is_named(kind: type[Asked], field: str, number: str) -> None:
    rest = json.dumps({name: value for name, value in BODIES[kind].items() if name != field})[1:-1]
    with pytest.raises(InvalidRequest) as refusal:
        decode_body(f'{{{rest}{", " if rest else ""}"{field}": {number}}}'.encode(), kind)
    assert {error.field.partition("[")[0] for error in refusal.value.details} == {field}


@pytest.mark.parametrize("field", ["tenant", "test_suite"])
def test_of_a_field_given_twice_the_last_counts(field: str) -> None:
    body = '{"tenant": "acme", "test_suite": "smoke", "%s": 5, "%s": "last"}' % (field, field)  # noqa: UP031
    assert getattr(decode_body(body.encode(), SubmitBody), field) == "last"


@pytest.mark.parametrize("moment", ["9999-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_what_may_be_null_has_its_range_as_well(moment: str) -> None:
    sentence, fields = faults(BODIES[KeyBody] | {"expires_at": moment}, KeyBody)
    assert sentence == "expires_at must lie in the years 1970-9998 of UTC"
    assert fields == ["expires_at"]
    assert decode_body(json.dumps(BODIES[KeyBody] | {"expires_at": None}).encode(), KeyBody).expires_at is None


def test_no_progress_is_below_zero() -> None:
    assert str(decode_body(b'{"token": "t", "progress": -0.0}', HeartbeatBody).progress) == "0.0"


class TestPieces:
    """Bodies of many items, which are decoded an item at a time."""

    @pytest.mark.parametrize("item", [b"[]", b"{}", b"1", b'""'])
    def test_a_list_that_is_too_long_is_not_decoded(self, item: bytes) -> None:
        body = b'{"jobs":[' + b",".join([item] * 2_000_000) + b"]}"
        tracemalloc.start()
        with pytest.raises(InvalidRequest, match=r"^jobs must be a list of 1-10000$"):
            decode_body(body, BatchBody)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * MIB  # a byte for each item is more

    def test_an_item_may_be_as_long_as_a_body_of_its_own(self) -> None:
        item = json.dumps(BODIES[SubmitBody]).encode()
        fits, too_long = item.rjust(MIB), item[:-1] + b" " * MIB + b"}"
        assert decode_body(b'{"jobs":[%b]}' % fits, BatchBody).jobs[0].tenant == "acme"
        with pytest.raises(InvalidRequest) as refusal:
            decode_body(b'{"jobs":[%b,%b,{}]}' % (item, too_long), BatchBody)
        assert str(refusal.value) == "jobs[1] must be at most 1 MiB of JSON"
        assert [error.field for error in refusal.value.details] == ["jobs[1]", "jobs[2].tenant", "jobs[2].test_suite"]

    @pytest.mark.parametrize("part", [b"[]", b"{}", b"1", b'""'])
    @pytest.mark.parametrize(
        ("kind", "field"), [(SubmitBody, "payload"), (CompleteBody, "result"), (SubmitBody, "cost")]
    )
    def test_a_value_of_too_many_parts_is_not_decoded(self, kind: type[Asked], field: str, part: bytes) -> None:
        body = json.dumps(BODIES[kind]).encode()[:-1] + b', "%b": [%b]}' % (field.encode(), b",".join([part] * 250_000))
        tracemalloc.start()
        with pytest.raises(InvalidRequest) as refusal:
            decode_body(body, kind)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert [error.field for error in refusal.value.details] == [field]
        assert peak < 3 * MIB  # it was copied, but eight bytes for each part are more

    def test_a_long_piece_that_is_no_object_is_named(self) -> None:
        with pytest.raises(InvalidRequest, match=r"^jobs\[0\] must be an object$"):
            decode_body(b'{"jobs": [[%b]]}' % b",".join([b"1"] * 200_000), BatchBody)

    def test_a_long_payload_of_few_parts_is_taken(self) -> None:
        escaped = b"\\u00e9" * 30_000
        body = b'{"tenant": "acme", "test_suite": "smoke", "payload": "%b"%b}' % (escaped, b" " * 500_000)
        assert decode_body(body, SubmitBody).payload == "\u00e9" * 30_000

    def test_so_may_all_that_is_beside_the_items(self) -> None:
        item = json.dumps(BODIES[SubmitBody]).encode()
        decode_body(b'{"jobs":[%b]%b}' % (item, b" " * (MIB - 100)), BatchBody)
        with pytest.raises(InvalidRequest, match=r"^the body must be at most 1 MiB beside jobs$"):
            decode_body(b'{"jobs":[%b]%b}' % (item, b" " * MIB), BatchBody)

    @pytest.mark.parametrize(
        "body",
        [
            b'{"jobs":[{"tenant":"\xff"}]}',
            b'{"jobs":[{"tenant":"\\ud800"}]}',
            b'{"jobs":[{}' + b",[" * 100_000 + b"]" * 100_001 + b"}",
            b'{"jobs":[{}],}',
            b'{"jobs":"\xff"}',
            b'{"jobs":[{}]}]',
            b'[{"jobs":[]}]',
            b"[" * 100_000,
        ],
    )
    def test_what_is_no_json_in_any_piece_is_none(self, body: bytes) -> None:
        with pytest.raises(InvalidRequest, match=r"^invalid JSON$"):
            decode_body(body, BatchBody)

    def test_of_a_list_given_twice_the_last_counts(self) -> None:
        item = json.dumps(BODIES[SubmitBody]).encode()
        assert len(decode_body(b'{"jobs":[1],"jobs":[%b]}' % item, BatchBody).jobs) == 1

    @pytest.mark.parametrize("jobs", [None, ""])
    def test_a_list_that_is_empty_handed_is_missing(self, jobs: object) -> None:
        assert faults({"jobs": jobs}, BatchBody) == ("jobs is required", ["jobs"])

    @pytest.mark.parametrize("jobs", [0, 1.5, True, "a", {}, [[]], [None]])
    def test_what_is_no_list_of_objects_is_named(self, jobs: object) -> None:
        assert faults({"jobs": jobs}, BatchBody)[1][0].startswith("jobs")

    @given(any_json)
    def test_a_payload_is_the_same_as_by_itself(self, payload: Any) -> None:
        item = BODIES[SubmitBody] | {"payload": payload}
        try:
            alone = decode_body(json.dumps(item).encode(), SubmitBody)
        except InvalidRequest:
            assert faults({"jobs": [item]}, BatchBody)[1] == ["jobs[0].payload"]
        else:
            [of_many] = decode_body(json.dumps({"jobs": [item]}).encode(), BatchBody).jobs
            assert json.dumps(of_many.payload) == json.dumps(alone.payload)


class TestQuery:
    @given(st.binary(max_size=200) | any_text.map(str.encode))
    @example(b"%" * 100)
    @example(b"&".join([b"limit=1"] * 1000))
    @example(b"limit=" + b"9" * 10_000)
    @example(b"limit=\xd9\xa1")
    def test_no_bytes_raise_anything_else(self, query: bytes) -> None:
        for kind in (ListQuery, Nothing):
            try:
                decode_query(query, kind)
            except InvalidRequest as refusal:
                json.dumps([str(refusal), [error.field for error in refusal.details]]).encode()

    def test_a_query(self) -> None:
        query = decode_query(b"tenant=a+b&limit=7&order=asc&state=queued", ListQuery)
        assert (query.tenant, query.limit, query.order, query.state) == ("a b", 7, "asc", "queued")
        assert decode_query(b"", ListQuery) == ListQuery()

    def test_what_is_not_utf8_is_named_with_all_else(self) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            decode_query(b"tenant=%FF&queue=%ED%A0%80&limit=0&%FE=1&state=%5CxFF", ListQuery)
        assert [(error.field, error.message) for error in refusal.value.details if error.field != "state"] == [
            ("limit", "must be 1-1000"),
            ("tenant", "must be percent-encoded UTF-8"),
            ("queue", "must be percent-encoded UTF-8"),
            ("\\xfe", "must be percent-encoded UTF-8"),
        ]

    @given(st.integers(1, 1000))
    def test_limits(self, limit: int) -> None:
        assert decode_query(b"limit=%d" % limit, ListQuery).limit == limit


@given(any_text)
def test_a_name_is_refused_for_a_reason(name: str) -> None:
    has_control = any(ord(c) < 32 or 127 <= ord(c) < 160 for c in name)
    is_bad = has_control or "/" in name or not name.strip() or len(name) > 128
    assert (fault_of(name, Name) is not None) == is_bad
