"""Requests made from the API's own description by schemathesis: whatever is sent, the server has an answer, and it fits."""

import pytest

pytest.importorskip("schemathesis", reason="schemathesis is not installed (make serve)")

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

SAMPLE = 4  # requests to each address in CI


@pytest.fixture(scope="session")
def description(server, compared):
    made = server.ask("/api/openapi.json")
    assert made.status == 200
    return schemathesis.openapi.from_dict(made.json)


def _fuzz(server, description, examples):
    key = server.key(f"fuzz {examples}")
    count, named = 0, set()
    for found in description.get_all_operations():
        operation = found.ok()
        named.add((operation.method.upper(), operation.path))

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def one(case):
            nonlocal count
            reply = case.call(base_url=server.base, headers={"Authorization": f"Bearer {key}"}, timeout=30)
            case.validate_response(
                reply, checks=[not_a_server_error, status_code_conformance, response_schema_conformance]
            )
            count += 1

        one()
    assert ("POST", "/api/compare") in named
    assert ("GET", "/api/search") in named
    assert count >= examples * len(named) / 2


@pytest.mark.slow
def test_a_sample_of_requests_gets_answers_that_fit(server, description):
    _fuzz(server, description, SAMPLE)


@pytest.mark.nightly
def test_many_requests_get_answers_that_fit(server, description):
    _fuzz(server, description, 200)
