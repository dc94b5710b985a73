"""From the id in an answer to the line in the server's log that says what happened."""

import logging

from starlette.testclient import TestClient

import perdure
from perdure.http import asgi
from tests.surfaces.http.conftest import problem

PASSWORD = "canary3pass9Kq2vXw7Lm4"


def test_what_the_store_cannot_meet_is_a_warning_with_the_id_of_the_request(caplog):
    app = perdure.App(f"postgresql://me:{PASSWORD}@127.0.0.1:1/nowhere")
    one = TestClient(asgi(app, hosts=("testserver",)), raise_server_exceptions=False)
    token = {"authorization": f"Bearer perdure_{'0' * 32}_{'x' * 43}", "x-request-id": "r-7"}
    assert problem(one.get("/api/jobs", headers=token)) == "store_error"
    app.close()
    (line,) = [one for one in caplog.records if one.name == "perdure.http"]
    assert line.levelno == logging.WARNING
    assert line.getMessage().startswith("request r-7 cannot be met now: ")
    assert PASSWORD not in caplog.text


def test_what_is_refused_is_told_with_its_code_to_who_listens_closely(client, caplog):
    caplog.set_level(logging.DEBUG, "perdure.http")
    ann = client("read", **{"x-request-id": "r-8"})
    for path, code in (("jobs/nothing", "not_found"), ("jobs?limit=0", "bad_request")):
        caplog.clear()
        assert problem(ann.get(f"/api/{path}")) == code
        (line,) = [one.getMessage() for one in caplog.records if one.name == "perdure.http"]
        assert line == f"request r-8 was refused: {code}"
